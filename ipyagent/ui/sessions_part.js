// The board's stored sessions: a list, a transcript, going on in one. Joined after `dom`, `lists`, `reading`.
const { element, button } = dom;
const { virtualList } = lists;
const { twoColumns, reader } = reading;

function sessionsPart({ channel, own }) {
  const root = element("section", "ia-look ib-sessions");
  root.setAttribute("aria-label", "Sessions");
  const { body, detail, status, say } = twoColumns(own, "Session");
  const count = element("div", "ib-count ia-dim ia-small");
  count.setAttribute("role", "status");
  const none = () => detail.replaceChildren(element("p", "ia-empty", "Choose a session to look inside."));
  const list = virtualList({
    label: "Stored sessions",
    own,
    empty: () => "No stored sessions here yet.",
    fetch: (from, number, done) =>
      channel.ask({ kind: "rows", from, count: number }, (message) => {
        if (message.rows) count.textContent = `${message.total.toLocaleString("en")} stored session${message.total === 1 ? "" : "s"}, newest first`;
        done(message.rows, message.total);
      }),
    fill: (head, about, [id, time, first, turns, cost, notebook, size, copy, problem, current], node) => {
      head.append(element("span", "ia-name", first || problem || "nothing asked yet"));
      if (current) head.append(element("span", "ia-tag ib-state", "this one"));
      const asked = `${turns.toLocaleString("en")} turn${turns === 1 ? "" : "s"}`;
      about.textContent = [time, asked, cost, notebook, copy, `${size.toLocaleString("en")} kB`].filter(Boolean).join(" · ");
      node.title = id;
    },
    open: (row, focus) => {
      open(row);
      if (focus) detail.focus();
    },
  });
  const open = ([id, time, first, , , notebook, , , , current]) => {
    const head = element("div", "ia-head");
    head.append(element("h3", "ia-title", first || id));
    const acts = element("div", "ia-tools");
    const take = (kind) => channel.ask({ kind, session: id }, (message) => message.failed && say(message.failed, true));
    const resume = button("Resume", () => take("resume"), "ia-primary ib-resume");
    resume.disabled = current;
    resume.title = current ? "The next request already goes to it" : "The next request continues this session";
    const fork = button("Continue in a copy", () => take("fork"), "ib-fork");
    acts.append(resume, fork);
    reader(detail, [head, element("div", "ia-dim ia-small", [id, time, notebook].filter(Boolean).join(" · ")), acts], (turn, done) =>
      channel.ask({ kind: "look", session: id, turn }, (message) => (message.look ? done(message.look) : say(message.failed ?? "it cannot be read", true))),
    );
  };
  channel.on((message) => {
    if (message.said || message.failed) say(message.said ?? message.failed, Boolean(message.failed));
    if (message.current !== undefined) {
      if (detail.contains(document.activeElement)) list.node.focus({ preventScroll: true }); // the button pressed goes
      none();
      list.reload(true);
    }
  });
  none();
  body.append(list.node, detail);
  root.append(count, body, status);
  return { node: root, appear: () => list.reload(true), leave: list.leave };
}

export default { sessionsPart };
