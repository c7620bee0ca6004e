// The board's skills: a list that can be searched, and the text of one. Joined after `dom`, `lists`, `reading`.
const { element, button, select } = dom;
const { virtualList } = lists;
const { twoColumns } = reading;

function skillsPart({ channel, own }) {
  const root = element("section", "ia-look ib-skills");
  root.setAttribute("aria-label", "Skills");
  const { body, detail, status, say } = twoColumns(own, "Open skill");
  const tools = element("div", "ia-tools");
  const search = element("input", "ia-input ib-search");
  search.type = "search";
  search.placeholder = "Search skills";
  search.setAttribute("aria-label", "Search skills");
  const source = select("Where from", [["", "from everywhere"], ["project", "this project"], ["user", "yours"], ["bundled", "with ipyagent"]]);
  const only = select("Which", [["", "all"], ["loaded", "loaded or asked for"], ["problems", "with remarks"]]);
  const count = element("span", "ia-dim ia-small ia-end");
  count.setAttribute("role", "status");
  tools.append(search, source, only, count);
  const remarks = element("div", "ib-remarks ia-dim ia-small");
  const wrong = element("details", "ib-fold");
  wrong.hidden = true;
  let shown = null;

  const list = virtualList({
    label: "Skills",
    own,
    empty: () => (search.value || source.value || only.value ? "No skill fits." : "No skills yet: %skills new NAME writes one."),
    fetch: (from, number, done) =>
      channel.ask({ kind: "rows", words: search.value.trim(), source: source.value, only: only.value, from, count: number }, (message) => {
        if (message.rows) {
          count.textContent = `${message.total.toLocaleString("en")} skill${message.total === 1 ? "" : "s"}`;
        }
        done(message.rows, message.total);
      }),
    fill: (head, about, [name, description, from, tokens, state, trouble], node) => {
      head.append(element("span", "ia-name", name));
      if (state) head.append(element("span", "ia-tag ib-state", state));
      head.append(element("span", "ia-tag", from));
      if (trouble) {
        const mark = element("span", "ia-wrong", "!");
        mark.setAttribute("role", "img");
        mark.setAttribute("aria-label", `remark: ${trouble}`);
        head.append(mark);
      }
      head.append(element("span", "ia-dim ia-small ia-number ia-end", `${tokens.toLocaleString("en")} tokens`));
      about.textContent = description;
      node.title = [description, trouble].filter(Boolean).join("\n");
    },
    open: ([name], focus) => open(name, focus),
  });
  const problems = (lines, all) => {
    wrong.hidden = !all;
    const items = lines.map((each) => element("li", "", each));
    if (all > lines.length) items.push(element("li", "", `${(all - lines.length).toLocaleString("en")} more: %skills doctor`));
    const rows = element("ul");
    rows.append(...items);
    wrong.replaceChildren(element("summary", "", `${all.toLocaleString("en")} remark${all === 1 ? "" : "s"} on skill files`), rows);
  };
  const look = () => {
    list.reload(true);
    channel.ask({ kind: "remarks" }, (message) => {
      if (message.remarks) remarks.replaceChildren(...message.remarks.map((each) => element("div", "", each)));
      if (message.problems) problems(...message.problems);
    });
  };
  const none = () => detail.replaceChildren(element("p", "ia-empty", "Choose a skill to read it."));
  const open = (name, focus) =>
    channel.ask({ kind: "open", name }, (message) => {
      if (message.failed) return say(message.failed, true);
      shown = message.opened;
      draw();
      if (focus) detail.focus();
    });
  const draw = () => {
    const head = element("div", "ia-head");
    head.append(element("h3", "ia-title", shown.name));
    if (shown.state) head.append(element("span", "ia-tag ib-state", shown.state));
    const load = button("Load with the next request", () => channel.ask({ kind: "load", name: shown.name }, (message) => (message.failed ? say(message.failed, true) : say(message.said))), "ia-primary ia-end ib-load");
    load.disabled = !shown.on || shown.state === "asked for";
    head.append(load);
    const nodes = [head, element("p", "", shown.description), element("div", "ia-dim ia-small", shown.facts.join(" · "))];
    for (const each of shown.problems) nodes.push(element("div", "ia-wrong ia-small", `! ${each}`));
    const text = element("div", "ib-text");
    text.innerHTML = shown.html;
    detail.replaceChildren(...nodes, text);
  };
  let typing = 0;
  search.addEventListener("input", () => {
    clearTimeout(typing);
    typing = setTimeout(() => list.reload(), 120);
  });
  search.addEventListener("keydown", (event) => {
    if (event.key !== "ArrowDown") return;
    event.preventDefault();
    list.node.focus();
  });
  for (const control of [source, only]) control.addEventListener("change", () => list.reload());
  channel.on((message) => {
    if (!message.changed) return;
    look();
    if (shown) open(shown.name, false);
  });
  none();
  body.append(list.node, detail);
  root.append(tools, remarks, body, status, wrong);
  return { node: root, appear: look, leave: list.leave };
}

export default { skillsPart };
