// The board's sub-agents: what each does, its transcript, a stop. Joined after `dom`, `reading`.
const { element, button } = dom;
const { twoColumns, reader } = reading;

const ENDS = { running: "at work", finished: "done", limit: "done, at its limit", stopped: "stopped", refused: "refused", failed: "failed", "cut off": "cut off" };

const spent = (seconds) => (seconds < 60 ? `${seconds.toFixed(1)} s` : `${Math.floor(seconds / 60)} min ${String(Math.round(seconds % 60)).padStart(2, "0")} s`);

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

export default { childrenPart };
