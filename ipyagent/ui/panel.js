// Shows what Python sends; decides nothing. HTML in `put` was made and escaped in Python; everything
// else is set as text. Clicks name the exact question they answer.
const stores = new WeakMap();

function storeOf(model) {
  let store = stores.get(model);
  if (store) return store;
  const page = Math.random().toString(36).slice(2);
  store = { seq: 0, order: [], pieces: new Map(), bar: null, barAt: 0, views: new Set() };
  stores.set(model, store);
  const whole = (state) => {
    if (!state || !Array.isArray(state.pieces) || state.seq < store.seq) return;
    store.seq = state.seq;
    const known = new Set(state.pieces.map((piece) => piece[0]));
    for (const id of [...store.order]) if (!known.has(id)) apply(["del", id]);
    let after = "";
    for (const [id, html, age, tail] of state.pieces) {
      const old = store.pieces.get(id);
      if (!old || old.html !== html || old.tail !== tail) {
        apply(["put", id, after, html, age]);
        if (tail) apply(["tail", id, tail]);
      }
      after = id;
    }
    apply(["bar", state.bar]);
  };
  const apply = (op) => {
    const [kind, id] = op;
    if (kind === "put") {
      const [, , after, html, age] = op;
      if (!store.pieces.has(id)) store.order.splice(after ? store.order.indexOf(after) + 1 : 0, 0, id);
      store.pieces.set(id, { html, tail: "", began: performance.now() - 1000 * (age || 0) });
    } else if (kind === "tail") {
      if (!store.pieces.has(id)) return;
      store.pieces.get(id).tail += op[2];
    } else if (kind === "del") {
      store.pieces.delete(id);
      store.order = store.order.filter((other) => other !== id);
    } else if (kind === "bar") {
      store.bar = op[1];
      store.barAt = performance.now() - 1000 * (op[1]?.age || 0);
    }
    for (const view of store.views) view(op);
  };
  model.on("msg:custom", (message) => {
    if (message.settle) return settle(model, message.id, message.settle, message.metadata);
    if (message.whole) return whole(message.whole);
    if (!message.seq || message.seq <= store.seq) return;
    if (message.seq !== store.seq + 1) return model.send({ kind: "ready", page }); // something was missed
    store.seq = message.seq;
    message.ops.forEach(apply);
  });
  const state = model.get("state");
  whole(state);
  if (state?.settle) setTimeout(() => settle(model, state.id, state.settle, state.metadata), 0);
  model.send({ kind: "ready", page });
  return store;
}

// JupyterLab and Notebook 7, undocumented: the notebook's own record of the widget's output becomes the
// static one. Where that is not possible the ended panel stays. In a shared document another page has done it most
// likely, and both at once would leave two.
function settle(model, id, bundle, metadata, waited = false) {
  const notebook = model.widget_manager?.context?.model;
  const cells = notebook?.cells;
  if (!cells) return;
  if (notebook.collaborative && !waited) {
    setTimeout(() => settle(model, id, bundle, metadata, true), 2000 + 4000 * Math.random());
    return;
  }
  for (let i = 0; i < cells.length; i++) {
    const outputs = cells.get(i).outputs;
    for (let j = 0; outputs && j < outputs.length; j++) {
      const view = outputs.get(j).data?.["application/vnd.jupyter.widget-view+json"];
      if (view?.model_id === id) outputs.set(j, { output_type: "display_data", data: bundle, metadata: metadata || {} });
    }
  }
}

const { element } = dom;

function seconds(ms) {
  const s = Math.floor(ms / 1000);
  return s < 60 ? `${s} s` : `${Math.floor(s / 60)} min ${String(s % 60).padStart(2, "0")} s`;
}

function makeBar(model) {
  const bar = element("div", "ia-bar");
  const phase = element("span", "ia-phase");
  const spinner = element("span", "ia-icon ia-running");
  spinner.setAttribute("aria-hidden", "true");
  const words = element("span", "ia-words");
  words.setAttribute("role", "status");
  const clock = element("span", "ia-elapsed");
  clock.setAttribute("aria-hidden", "true");
  phase.append(spinner, words, clock);
  const meter = element("span", "ia-meter");
  meter.setAttribute("role", "meter");
  meter.setAttribute("aria-label", "Context window");
  meter.setAttribute("aria-valuemin", "0");
  meter.setAttribute("aria-valuemax", "100");
  const track = element("span", "ia-track");
  const fill = element("span", "ia-fill");
  track.append(fill);
  const label = element("span", "ia-label");
  meter.append(track, label);
  const cost = element("span", "ia-cost");
  const name = element("span", "ia-model");
  const stop = element("button", "ia-stop", "Stop");
  stop.type = "button";
  stop.title = "Stop the agent; what already ran stays";
  stop.addEventListener("click", (event) => {
    if (!event.isTrusted) return;
    stop.disabled = true;
    model.send({ kind: "stop" });
  });
  bar.append(phase, meter, cost, name, stop);
  const update = (state) => {
    bar.hidden = !state; // it has moved to the panel below
    if (!state) return;
    bar.dataset.state = state.state;
    if (words.textContent !== state.phase) words.textContent = state.phase;
    name.textContent = state.model;
    cost.textContent = state.cost;
    cost.title = state.costs;
    const running = state.state === "running" || state.state === "asking";
    stop.disabled = !running;
    stop.hidden = state.state === "ended";
    stop.textContent = state.state === "stopping" ? "Stopping…" : "Stop";
    meter.hidden = !state.meter;
    if (!state.meter) return;
    const m = state.meter;
    meter.dataset.level = m.level;
    meter.title = m.tooltip;
    meter.setAttribute("aria-valuenow", String(Math.round(100 * m.fill)));
    meter.setAttribute("aria-valuetext", m.tooltip.replaceAll("\n", "; "));
    fill.style.width = `${100 * m.fill}%`;
    label.textContent = m.label;
    while (track.childNodes.length > 1) track.lastChild.remove();
    for (const [kind, at] of m.marks) {
      const mark = element("span", "ia-mark");
      mark.dataset.mark = kind;
      mark.style.left = `${100 * at}%`;
      track.append(mark);
    }
  };
  return { bar, update, clock };
}

function addTail(node, text) {
  const named = node.querySelector("[data-tail]");
  const target = named || node.querySelector(":scope > pre:last-child > code") || node.querySelector(":scope > p:last-child") || node;
  target.append(document.createTextNode(text));
  if (named) named.scrollTop = named.scrollHeight;
}

function fillPiece(node, piece) {
  const folds = [...node.querySelectorAll("details")].map((fold) => fold.open);
  node.innerHTML = piece.html;
  node.querySelectorAll("details").forEach((fold, i) => (fold.open = folds[i] || false));
  if (piece.tail) addTail(node, piece.tail);
  const live = node.querySelector("[data-tail]");
  if (live) live.scrollTop = live.scrollHeight;
}

const nameOf = (card) => `${card.dataset.call} ${card.dataset.digest}`;

// Allow stays shut until all of what would run was in sight: it fits its box or was scrolled to its end.
function watch(card, seen) {
  const box = card.querySelector(".ia-full");
  const rest = card.querySelector(".ia-rest");
  const total = box.textContent.replace(/\n$/, "").split("\n").length;
  let most = 0;
  const look = () => {
    const room = box.clientHeight;
    if (room && box.scrollTop + room >= box.scrollHeight - 2) seen.add(nameOf(card));
    const done = seen.has(nameOf(card));
    if (!done) most = Math.max(most, linesInSight(box));
    rest.hidden = done && !most; // it fitted
    card.querySelector("[data-next]").hidden = done;
    card.querySelector(".ia-count").textContent = `${lines(total)}, ${done ? "all" : most} shown`;
    if (card.classList.contains("ia-answered")) return;
    for (const button of card.querySelectorAll("[data-act]:not([data-act=deny])")) {
      button.disabled = !done;
      if (button.dataset.act === "once") button.title = done ? "" : "First look at all of it";
    }
  };
  box.addEventListener("scroll", look, { passive: true });
  new ResizeObserver(look).observe(box);
  look();
}

const lines = (count) => `${count.toLocaleString("en")} line${count === 1 ? "" : "s"}`;

// How many lines of the box's text end within its frame, by halving.
function linesInSight(box) {
  const texts = [];
  const walker = document.createTreeWalker(box, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) texts.push(walker.currentNode);
  const ends = [];
  for (const node of texts)
    for (let at = node.data.indexOf("\n"); at >= 0; at = node.data.indexOf("\n", at + 1)) ends.push([node, at]);
  const bottom = box.getBoundingClientRect().top + box.clientTop + box.clientHeight;
  const range = document.createRange();
  let low = 0;
  let high = ends.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    range.setStart(...ends[middle]);
    range.setEnd(ends[middle][0], ends[middle][1] + 1);
    if (range.getBoundingClientRect().bottom <= bottom) low = middle + 1;
    else high = middle;
  }
  return low;
}

function render({ model, el }) {
  const store = storeOf(model);
  const root = element("section", "ipyagent ia-look ia-panel tex2jax_ignore mathjax_ignore");
  root.setAttribute("aria-label", "Agent");
  dom.ownKeys(root);
  const log = element("div", "ia-log");
  const alert = element("div", "ia-alert ia-unseen");
  alert.setAttribute("role", "alert");
  const { bar, update, clock } = makeBar(model);
  root.append(log, alert, bar);
  el.append(root);
  const nodes = new Map();
  const seen = new Set(); // questions whose whole text was in sight in this view

  const view = (op) => {
    const [kind, id] = op;
    if (kind === "put") {
      let node = nodes.get(id);
      if (!node) {
        node = element("div", "ia-piece");
        nodes.set(id, node);
        const at = store.order.indexOf(id);
        const before = at > 0 ? nodes.get(store.order[at - 1]) : null;
        before ? before.after(node) : log.prepend(node);
      }
      fillPiece(node, store.pieces.get(id));
      node.classList.toggle("ia-lines", Boolean(node.firstElementChild?.matches("details, div")));
      const card = node.querySelector(".ia-card");
      node.classList.toggle("ia-asking", Boolean(card));
      if (card) {
        watch(card, seen);
        const told = [".ia-danger", ".ia-ask"].map((part) => card.querySelector(part)?.querySelector("b").textContent);
        alert.textContent = "Permission needed: " + told.filter(Boolean).join(". ");
        card.scrollIntoView({ block: "nearest" });
      }
    } else if (kind === "tail") {
      const node = nodes.get(id);
      if (node) addTail(node, op[2]);
    } else if (kind === "del") {
      nodes.get(id)?.remove();
      nodes.delete(id);
    } else if (kind === "bar") {
      update(op[1]);
      if (op[1]?.state !== "asking") alert.textContent = "";
      tick();
    }
  };

  // An event that a script of the page made is nobody's answer.
  const answer = (card, choice) => {
    if (choice !== "deny" && !seen.has(nameOf(card))) return;
    for (const control of card.querySelectorAll("button, input")) control.disabled = true;
    card.classList.add("ia-answered");
    model.send({
      kind: "answer", answer: choice, call: card.dataset.call, digest: card.dataset.digest,
      reason: card.querySelector(".ia-reason").value,
    });
  };
  root.addEventListener("click", (event) => {
    if (!event.isTrusted) return;
    const box = event.target.closest("[data-next]")?.closest(".ia-card").querySelector(".ia-full");
    if (box) return box.scrollBy(0, box.clientHeight - 20);
    const button = event.target.closest("button[data-act]");
    const card = button?.closest(".ia-card");
    if (card && !button.disabled) answer(card, button.dataset.act);
    else if (button && !card && !button.disabled) {
      button.disabled = true; // the piece comes anew when it is done
      model.send({ kind: button.dataset.act, of: button.dataset.of });
    }
  });
  root.addEventListener("keydown", (event) => {
    event.stopPropagation();
    if (!event.isTrusted) return;
    const fold = event.key === "Escape" && event.target.closest("details[open]");
    if (fold) {
      fold.open = false;
      fold.querySelector("summary").focus();
    }
    // Enter in the reason sends the refusal it explains; Enter and Escape elsewhere decide nothing.
    if (event.key === "Enter" && event.target.matches(".ia-reason") && event.target.value.trim() && !event.isComposing)
      answer(event.target.closest(".ia-card"), "deny");
  });

  const tick = () => {
    const now = performance.now();
    const passed = now - store.barAt;
    clock.textContent = store.bar && store.bar.state !== "ended" && passed >= 1000 ? seconds(passed) : "";
    for (const node of log.querySelectorAll(".ia-clock")) {
      const id = [...nodes].find(([, other]) => other.contains(node))?.[0];
      const ms = id ? now - store.pieces.get(id).began : 0;
      const text = ms >= 1000 ? seconds(ms) : "";
      if (node.textContent !== text) node.textContent = text;
    }
  };
  const timer = setInterval(tick, 250);
  store.views.add(view);
  for (const id of store.order) view(["put", id]);
  if (store.bar || store.order.length) view(["bar", store.bar]);
  return () => {
    clearInterval(timer);
    store.views.delete(view);
  };
}

export default { initialize: ({ model }) => void storeOf(model), render };
