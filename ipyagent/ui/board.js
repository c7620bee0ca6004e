// The board: its tabs in one place, ours and a table for each of another package. The parts' scripts and those of the older panels (`timelinePart`, `memoryPart`)
// are joined before this one. Every word is set as text but HTML that Python made and escaped. The board stands where
// the kernel left its static form, in as many places as there are, and stays when that form is written anew.
const { element, button } = dom;

let counter = 0;
const unique = () => `${(globalThis.crypto?.randomUUID?.() ?? String(Math.random())).slice(0, 13)}-${++counter}`;

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

function tableTab({ channel }) {
  const node = element("div", "ib-list");
  const show = ({ table }) => {
    if (!table) return;
    const [head, columns, rows, count] = table;
    const grid = element("table");
    for (const [kind, cells] of [["th", columns], ...rows.map((row) => ["td", row])]) {
      const row = element("tr");
      for (const cell of cells) row.append(element(kind, "", cell));
      grid.append(row);
    }
    node.replaceChildren(element("p", "", head), ...(rows.length ? [grid] : []));
    if (count > rows.length) node.append(element("p", "", `${count - rows.length} more`));
  };
  channel.on(show);
  channel.ask({ kind: "table" }, show);
  return { node };
}

function makeBoard(model, first) {
  const view = unique();
  const state = model.get("state");
  const TABS = state.tabs;
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
  const makers = { context: older(timelinePart), memory: older(memoryPart), skills: skillsTab.skillsPart, subagents: childrenTab.childrenPart, sessions: sessionsTab.sessionsPart };
  const tabs = element("div", "ia-tabs ib-tabs");
  tabs.setAttribute("role", "tablist");
  tabs.setAttribute("aria-label", "Parts of the board");
  const panel = element("div", "ib-panel");
  const parts = {};
  const make = (name) => {
    if (parts[name]) return;
    const channel = channelOf(model, view, name);
    const part = (makers[name] ?? tableTab)({ channel, own: `${view}-${name}`, state: state[name] ?? {} });
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
