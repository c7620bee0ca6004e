// The board: five tabs in one place. `timelinePart` and `memoryPart` are the scripts of those panels, joined before
// this one. Every word is set as text but HTML that Python made and escaped. The board stands where the kernel left
// its static form, in as many places as there are, and stays when that form is written anew.
const ROW = 50; // pixels, as in the style sheet
const WINDOW = 100; // rows of one question
const TABS = [["context", "Context"], ["memory", "Memory"], ["skills", "Skills"], ["children", "Sub-agents"], ["sessions", "Sessions"]];

const { element, button, select } = dom;

let counter = 0;
const unique = () => `${(globalThis.crypto?.randomUUID?.() ?? String(Math.random())).slice(0, 13)}-${++counter}`;

// ---------------------------------------------------------------------- a list of which only what is in sight is there

// `fetch(from, count, done)` asks for rows, `done(rows, total)`; `fill(node, row)` writes one; `open(row, focus)`.
function virtualList({ label, fetch, fill, open, empty, own }) {
  const list = element("div", "ia-list ib-list");
  list.tabIndex = 0;
  list.setAttribute("role", "listbox");
  list.setAttribute("aria-label", label);
  const sheet = element("div", "ib-sheet");
  sheet.setAttribute("role", "presentation");
  list.append(sheet);
  let total = 0;
  let at = -1;
  let generation = 0;
  let windows = new Map(); // number → rows, null while asked for
  let settling = 0;
  const rowAt = (i) => windows.get(Math.floor(i / WINDOW))?.[i % WINDOW];
  const fetchWindow = (number) => {
    if (windows.get(number) !== undefined) return;
    windows.set(number, null);
    const asked = generation;
    fetch(number * WINDOW, WINDOW, (rows, count) => {
      if (asked !== generation) return;
      if (!rows) return windows.delete(number);
      windows.set(number, rows);
      total = count;
      sheet.style.height = `${total * ROW}px`;
      at = Math.min(at, total - 1);
      paint();
    });
  };
  const bounds = () => [Math.max(0, Math.floor(list.scrollTop / ROW) - 4), Math.min(total - 1, Math.ceil((list.scrollTop + list.clientHeight) / ROW) + 4)];
  const paint = () => {
    const [first, last] = bounds();
    const nodes = new Map([...sheet.children].map((node) => [Number(node.dataset.row), node]));
    for (const [i, node] of nodes) if (!(i >= first && i <= last)) node.remove();
    for (let i = first; i <= last; i++) {
      let node = nodes.get(i);
      if (!node) {
        node = element("div", "ia-row ib-row");
        node.setAttribute("role", "option");
        sheet.append(node);
      }
      node.id = `${own}-${i}`;
      node.style.top = `${i * ROW}px`;
      node.dataset.row = i;
      node.setAttribute("aria-setsize", String(total));
      node.setAttribute("aria-posinset", String(i + 1));
      node.setAttribute("aria-selected", String(i === at));
      const row = rowAt(i);
      if (row) {
        const [head, about] = [element("div"), element("div", "ia-about")];
        node.replaceChildren(head, about);
        fill(head, about, row, node);
      } else node.replaceChildren(element("span", "ia-dim", "…"));
    }
    if (at >= first && at <= last) list.setAttribute("aria-activedescendant", `${own}-${at}`);
    else list.removeAttribute("aria-activedescendant");
    if (!total && windows.get(0)) sheet.replaceChildren(element("p", "ia-empty", empty()));
    clearTimeout(settling); // a fast drag passes by many windows; only where it rests is asked for
    settling = setTimeout(() => {
      const [begin, end] = bounds();
      for (let each = Math.floor(begin / WINDOW); each <= Math.floor(Math.max(end, 0) / WINDOW); each++) fetchWindow(each);
    }, 30);
  };
  const move = (i) => {
    if (!total) return;
    at = Math.max(0, Math.min(total - 1, i));
    const top = at * ROW;
    if (top < list.scrollTop) list.scrollTop = top;
    else if (top + ROW > list.scrollTop + list.clientHeight) list.scrollTop = top + ROW - list.clientHeight;
    paint();
  };
  list.addEventListener("scroll", () => requestAnimationFrame(paint), { passive: true });
  sheet.addEventListener("click", (event) => {
    const node = event.target.closest(".ib-row");
    if (!node) return;
    move(Number(node.dataset.row));
    const row = rowAt(at);
    if (row) open(row, false);
  });
  list.addEventListener("keydown", (event) => {
    if (event.target !== list) return;
    const page = Math.max(1, Math.floor(list.clientHeight / ROW) - 1);
    const steps = { ArrowDown: at + 1, ArrowUp: at - 1, PageDown: at + page, PageUp: at - page, Home: 0, End: total - 1 };
    const row = rowAt(at);
    if (event.key in steps) move(steps[event.key]);
    else if ((event.key === "Enter" || event.key === " ") && row) open(row, true);
    else return;
    event.preventDefault();
  });
  const reload = (keep) => {
    generation += 1;
    windows = new Map(keep ? [...windows].filter(([, rows]) => rows).map(([number, rows]) => [number, rows]) : []);
    if (!keep) {
      at = -1;
      list.scrollTop = 0;
      fetchWindow(0);
      return;
    }
    // what is in sight is asked for again, and stands until it has come
    const [begin, end] = bounds();
    const seen = new Set([0, Math.floor(begin / WINDOW), Math.floor(Math.max(end, 0) / WINDOW)]);
    for (const number of [...windows.keys()]) if (!seen.has(number)) windows.delete(number);
    const asked = generation;
    for (const number of seen) {
      fetch(number * WINDOW, WINDOW, (rows, count) => {
        if (asked !== generation || !rows) return;
        windows.set(number, rows);
        total = count;
        sheet.style.height = `${total * ROW}px`;
        at = Math.min(at, total - 1);
        paint();
      });
    }
  };
  const watcher = new ResizeObserver(() => list.clientHeight && paint());
  watcher.observe(list);
  return { node: list, reload, paint, choose: (wanted) => { for (let i = 0; i < total; i++) if (rowAt(i) && wanted(rowAt(i))) return move(i); }, leave: () => watcher.disconnect() };
}

// ---------------------------------------------------------------------- what parts share

function twoColumns(own, label) {
  const body = element("div", "ib-body");
  const detail = element("div", "ia-box ib-detail");
  detail.tabIndex = -1;
  detail.setAttribute("role", "region");
  detail.setAttribute("aria-label", label);
  const status = element("div", "ia-status");
  status.setAttribute("role", "status");
  const say = (words, bad) => status.replaceChildren(element("span", bad ? "ia-wrong" : "", words));
  return { body, detail, status, say };
}

// A transcript, a turn at a time. `ask(turn, done)`.
function reader(detail, head, ask) {
  const tools = element("div", "ia-tools");
  const text = element("div", "ib-text");
  const where = element("span", "ia-dim ia-small");
  where.setAttribute("role", "status");
  let turn = 0;
  let turns = 0;
  const go = (to) =>
    ask(to, (look) => {
      [turn, turns] = [look.turn, look.turns];
      where.textContent = `turn ${turn.toLocaleString("en")} of ${turns.toLocaleString("en")}, read only`;
      back.disabled = turn <= 1;
      on.disabled = turn >= turns;
      text.innerHTML = look.html;
    });
  const back = button("Earlier turn", () => go(turn - 1), "ia-low");
  const on = button("Later turn", () => go(turn + 1), "ia-low");
  back.disabled = on.disabled = true;
  tools.append(back, on, where);
  detail.replaceChildren(...head, tools, text);
  go(0);
  return { again: () => turn && turn === turns && go(0) };
}

const spent = (seconds) => (seconds < 60 ? `${seconds.toFixed(1)} s` : `${Math.floor(seconds / 60)} min ${String(Math.round(seconds % 60)).padStart(2, "0")} s`);

// ---------------------------------------------------------------------- skills

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

// ---------------------------------------------------------------------- sub-agents

const ENDS = { running: "at work", finished: "done", limit: "done, at its limit", stopped: "stopped", refused: "refused", failed: "failed", "cut off": "cut off" };

function childrenPart({ channel, own }) {
  const root = element("section", "ia-look ib-children");
  root.setAttribute("aria-label", "Sub-agents");
  const { body, detail, status, say } = twoColumns(own, "Transcript");
  const list = element("ul", "ia-list ib-subs");
  list.setAttribute("aria-label", "Sub-agents of the session");
  const count = element("div", "ib-count ia-dim ia-small");
  count.setAttribute("role", "status");
  const cards = new Map(); // by id
  let shown = null; // { id, reader }
  const none = () => detail.replaceChildren(element("p", "ia-empty", "Choose a sub-agent to read what it did."));
  const open = (id, name) => {
    const head = element("div", "ia-head");
    head.append(element("h3", "ia-title", name));
    const view = reader(detail, [head], (turn, done) =>
      channel.ask({ kind: "look", child: id, turn }, (message) => (message.look ? done(message.look) : say(message.failed ?? "there is nothing to read yet", true))),
    );
    shown = { id, view };
    for (const [each, card] of cards) card.look.setAttribute("aria-pressed", String(each === id));
  };
  const card = (id) => {
    const node = element("li", "ia-row ib-sub");
    const head = element("div");
    const icon = element("span", "ia-icon");
    icon.setAttribute("aria-hidden", "true");
    const name = element("span", "ia-name");
    const kind = element("span", "ia-tag");
    const facts = element("span", "ia-dim ia-small ia-number ia-end");
    head.append(icon, name, kind, facts);
    const about = element("div", "ia-about");
    const now = element("div", "ia-small ib-now");
    const acts = element("div", "ia-tools ib-acts");
    const look = button("Read", () => open(id, name.textContent), "ia-low");
    const stop = button("Stop", () => {
      stop.disabled = true;
      channel.ask({ kind: "stop", child: id }, (message) => message.said && say(message.said));
    }, "ia-low ia-risky ib-stop");
    acts.append(look, stop);
    node.append(head, about, now, acts);
    return { node, icon, name, kind, facts, about, now, look, stop, sub: null, since: 0 };
  };
  const tick = () => {
    for (const { sub, since, facts } of cards.values()) {
      const seconds = sub.seconds + (sub.status === "running" ? (performance.now() - since) / 1000 : 0);
      facts.textContent = [sub.requests ? `${sub.requests} model call${sub.requests === 1 ? "" : "s"}` : "", sub.cost && sub.cost !== "$0" ? sub.cost : "", spent(seconds)].filter(Boolean).join(" · ");
    }
  };
  const show = (message) => {
    const seen = new Set();
    const nodes = [];
    for (const sub of message.subs) {
      seen.add(sub.id);
      if (!cards.has(sub.id)) cards.set(sub.id, card(sub.id));
      const each = cards.get(sub.id);
      const running = sub.status === "running";
      Object.assign(each, { sub, since: performance.now() });
      each.name.textContent = sub.name;
      each.kind.textContent = sub.kind + (sub.background ? ", in the background" : "");
      each.about.textContent = sub.task;
      each.icon.className = `ia-icon${running ? " ia-running" : ""}`;
      each.icon.textContent = running ? "" : { finished: "✓", limit: "✓", stopped: "■" }[sub.status] ?? "✗";
      const words = [ENDS[sub.status] ?? sub.status, running ? sub.doing : sub.message, sub.handed ? `handed back ${sub.handed}` : ""].filter(Boolean).join(": ");
      if (each.now.textContent !== words) each.now.textContent = words;
      each.look.setAttribute("aria-label", `Read what ${sub.name} did`);
      each.stop.setAttribute("aria-label", `Stop ${sub.name}`);
      each.stop.hidden = !running;
      if (!running) each.stop.disabled = false;
      nodes.push(each.node);
    }
    for (const id of [...cards.keys()]) if (!seen.has(id)) cards.delete(id);
    const at_work = message.subs.filter((sub) => sub.status === "running").length;
    count.textContent = message.total ? `${message.total.toLocaleString("en")} in this session, ${at_work} at work` + (message.total > message.subs.length ? `; the newest ${message.subs.length} are listed` : "") : "";
    if (!nodes.length) nodes.push(element("li", "ia-empty", "No sub-agents in this session."));
    const before = [...list.children];
    if (before.length !== nodes.length || nodes.some((node, i) => node !== before[i])) list.replaceChildren(...nodes);
    tick();
    if (shown && seen.has(shown.id) && cards.get(shown.id).sub.status === "running") shown.view.again();
  };
  channel.on((message) => message.subs && show(message));
  const clock = setInterval(() => root.isConnected && [...cards.values()].some(({ sub }) => sub.status === "running") && tick(), 500);
  none();
  body.append(list, detail);
  root.append(count, body, status);
  return { node: root, appear: () => channel.ask({ kind: "subs", from: 0 }, (message) => message.subs && show(message)), leave: () => clearInterval(clock) };
}

// ---------------------------------------------------------------------- sessions

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
      head.append(element("span", "ia-dim ia-small ia-number ia-end", `${turns.toLocaleString("en")} turn${turns === 1 ? "" : "s"} · ${cost}`));
      about.textContent = [time, notebook, copy, `${size.toLocaleString("en")} kB`].filter(Boolean).join(" · ");
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
    resume.title = current ? "The next request goes to it already" : "The next request goes on in this session";
    const fork = button("Go on in a copy", () => take("fork"), "ib-fork");
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

// ---------------------------------------------------------------------- the board

// One panel's messages among those of all: `ask` and `on` for ours, `model` as the older panels' scripts know it.
function channelOf(model, view, part) {
  const waiting = new Map();
  const listeners = new Set();
  let seq = 0;
  const send = (content, answered) => {
    seq += 1;
    const name = `${view}.${part}.${seq}`;
    if (answered) waiting.set(name, answered);
    model.send({ ...content, part, seq: name });
  };
  const heard = (message) => {
    if (message?.part !== part) return;
    if (message.seq === undefined || message.seq === null) for (const listener of [...listeners]) listener(message);
    else {
      const answered = waiting.get(message.seq);
      waiting.delete(message.seq);
      answered?.(message);
    }
  };
  model.on("msg:custom", heard);
  return {
    ask: (content, answered) => send(content, answered ?? (() => {})),
    on: (listener) => listeners.add(listener),
    leave: () => model.off("msg:custom", heard),
    all: (content) => send(content, (message) => {
      for (const listener of [...listeners]) listener(message);
    }),
    model: (state) => ({
      get: (name) => (name === "state" ? state : undefined),
      send: (content) => {
        const { seq: inner, ...rest } = content;
        send(rest, (message) => {
          for (const listener of [...listeners]) listener({ ...message, seq: inner });
        });
      },
      on: (_, listener) => listeners.add(listener),
      off: (_, listener) => listeners.delete(listener),
    }),
  };
}

function older(script) {
  return ({ channel, state }) => {
    const host = element("div");
    const leave = script.render({ model: channel.model(structuredClone(state)), el: host });
    return { node: host, leave };
  };
}

function makeBoard(model, first) {
  const view = unique();
  const state = model.get("state");
  const root = element("section", "ipyagent ia-look ia-board tex2jax_ignore mathjax_ignore");
  root.setAttribute("aria-label", "ipyagent");
  dom.ownKeys(root);
  root.addEventListener("keydown", (event) => {
    event.stopPropagation();
    const part = event.key === "Escape" && !event.defaultPrevented && event.target.closest(".ib-detail") && event.target.closest(".ib-part");
    if (part) part.querySelector(".ib-list, .ib-subs [aria-pressed=true]")?.focus(); // out of what is open, to where it was opened
    const search = panel.querySelector(".ib-part:not([hidden]) input[type=search]");
    if (event.key !== "/" || event.defaultPrevented || !search || event.target.matches("input, textarea, select")) return;
    event.preventDefault();
    search.focus();
  });
  const makers = { context: older(timelinePart), memory: older(memoryPart), skills: skillsPart, children: childrenPart, sessions: sessionsPart };
  const tabs = element("div", "ia-tabs ib-tabs");
  tabs.setAttribute("role", "tablist");
  tabs.setAttribute("aria-label", "Parts of the board");
  const panel = element("div", "ib-panel");
  const parts = {};
  const make = (name) => {
    if (parts[name]) return;
    const channel = channelOf(model, view, name);
    const part = makers[name]({ channel, own: `${view}-${name}`, state: state[name] ?? {} });
    const node = element("div", "ib-part");
    node.dataset.part = name;
    node.id = `${view}-panel-${name}`;
    node.setAttribute("role", "tabpanel");
    node.setAttribute("aria-labelledby", `${view}-tab-${name}`);
    node.append(part.node);
    panel.append(node);
    parts[name] = { ...part, box: node, channel };
    if (name === "context") channel.all({ kind: "all" });
  };
  const choose = (name, focus) => {
    make(name);
    for (const node of tabs.children) {
      const on = node.dataset.tab === name;
      node.setAttribute("aria-selected", String(on));
      node.tabIndex = on ? 0 : -1;
      if (on && focus) node.focus();
    }
    for (const [each, part] of Object.entries(parts)) part.box.hidden = each !== name;
    parts[name].appear?.();
  };
  TABS.forEach(([name, words], i) => {
    const node = button(words, () => choose(name), "ia-tab");
    node.id = `${view}-tab-${name}`;
    node.dataset.tab = name;
    node.setAttribute("role", "tab");
    node.setAttribute("aria-controls", `${view}-panel-${name}`);
    node.addEventListener("keydown", (event) => {
      const to = { ArrowRight: i + 1, ArrowLeft: i - 1, Home: 0, End: TABS.length - 1 }[event.key];
      if (to === undefined) return;
      event.preventDefault();
      choose(TABS[(to + TABS.length) % TABS.length][0], true);
    });
    tabs.append(node);
  });
  root.append(tabs, panel);
  choose(first);
  return {
    root,
    leave: () => {
      for (const part of Object.values(parts)) {
        part.leave?.();
        part.channel.leave();
      }
    },
  };
}

function initialize({ model }) {
  const mark = model.get("state").mark;
  const wanted = `[data-ipyagent-board^="${CSS.escape(mark)}."]`;
  const boards = new Map(); // by the name of the place
  const place = () => {
    for (const host of document.querySelectorAll(wanted)) {
      const name = host.dataset.ipyagentBoard;
      let board = boards.get(name);
      if (board && host.contains(board.root)) continue;
      const fresh = !board;
      if (fresh) boards.set(name, (board = makeBoard(model, name.split(".")[1])));
      const scrolled = fresh ? [] : board.scrolled();
      const focus = board.root.contains(document.activeElement) ? document.activeElement : board.focused;
      host.closest(".jp-RenderedHTMLCommon")?.classList.remove("jp-RenderedHTMLCommon"); // the look of prose is not a panel's
      host.className = "ib-place tex2jax_ignore mathjax_ignore";
      host.replaceChildren(board.root);
      for (const [node, top, left] of scrolled) [node.scrollTop, node.scrollLeft] = [top, left];
      if (focus?.isConnected && document.activeElement === document.body) focus.focus({ preventScroll: true });
      if (fresh) keep(board);
    }
  };
  // A node that leaves the page forgets how far it was scrolled, and the focus: both are noted while it is there.
  const keep = (board) => {
    const tops = new Map();
    board.root.addEventListener("scroll", (event) => tops.set(event.target, [event.target.scrollTop, event.target.scrollLeft]), { capture: true, passive: true });
    board.root.addEventListener("focusin", (event) => (board.focused = event.target));
    board.root.addEventListener("focusout", (event) => event.relatedTarget && (board.focused = null));
    board.scrolled = () => [...tops].filter(([node]) => board.root.contains(node)).map(([node, [top, left]]) => [node, top, left]);
  };
  let due = false;
  const watcher = new MutationObserver(() => {
    if (due) return;
    due = true;
    queueMicrotask(() => {
      due = false;
      place();
    });
  });
  watcher.observe(document.body, { childList: true, subtree: true });
  place();
  const leave = () => {
    watcher.disconnect();
    for (const board of boards.values()) board.leave();
  };
  model.on("destroy", leave);
  return leave;
}

export default { initialize };
