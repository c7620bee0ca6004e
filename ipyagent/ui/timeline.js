// The context timeline: every word is set as text, nothing that Python sends is markup.
function element(tag, kind, text) {
  const node = document.createElement(tag);
  if (kind) node.className = kind;
  if (text !== undefined) node.textContent = text;
  return node;
}

function legend(state) {
  const list = element("ul", "it-legend");
  for (const [name, color] of state.sources) {
    const item = element("li");
    const swatch = element("span", "it-swatch");
    swatch.style.background = color;
    item.append(swatch, name);
    list.append(item);
  }
  return list;
}

function column(state, bar, most, pick) {
  const turn = element("div", "it-turn");
  const marks = element("div", "it-marks");
  for (const mark of state.marks.filter((each) => each.turn === bar.number)) {
    const button = element("button", "it-mark", mark.letter);
    button.type = "button";
    button.dataset.event = mark.event;
    button.dataset.kind = mark.kind;
    button.title = `${mark.kind}: ${mark.words}`;
    button.setAttribute("aria-label", `Turn ${mark.turn}, ${mark.kind}: ${mark.words}`);
    button.addEventListener("click", () => pick({ event: mark.event }));
    marks.append(button);
  }
  const button = element("button", "it-bar");
  button.type = "button";
  button.dataset.turn = bar.number;
  button.title = `Turn ${bar.number}: ${bar.text}\n${bar.words}`;
  button.setAttribute("aria-label", `Turn ${bar.number}: ${bar.words}. ${bar.text}`);
  const stack = element("span", "it-stack");
  stack.style.height = `${(100 * bar.tokens) / most}%`;
  bar.parts.forEach((tokens, i) => {
    if (!tokens) return;
    const part = element("span", "it-part");
    part.style.flexGrow = tokens;
    part.style.background = state.sources[i][1];
    stack.append(part);
  });
  button.append(stack);
  button.addEventListener("click", () => pick({ turn: bar.number }));
  turn.append(marks, button, element("span", "it-number", String(bar.number)));
  return turn;
}

function shares(state, bar) {
  const table = element("table", "it-shares");
  const total = bar.parts.reduce((sum, tokens) => sum + tokens, 0) || 1;
  bar.parts.forEach((tokens, i) => {
    if (!tokens) return;
    const row = element("tr");
    const name = element("th", "", "");
    name.scope = "row";
    const swatch = element("span", "it-swatch");
    swatch.style.background = state.sources[i][1];
    name.append(swatch, state.sources[i][0]);
    row.append(name, element("td", "", tokens.toLocaleString("en")), element("td", "", `${((100 * tokens) / total).toFixed(1)} %`));
    table.append(row);
  });
  return table;
}

function pairs(message) {
  const table = element("table", "it-pairs");
  const head = element("tr");
  for (const words of ["Before", "After"]) {
    const cell = element("th", "", words);
    cell.scope = "col";
    head.append(cell);
  }
  table.append(head);
  for (const [before, after, same] of message.rows) {
    const row = element("tr");
    if (same) {
      const cell = element("td", "it-same", before);
      cell.colSpan = 2;
      row.append(cell);
    } else {
      for (const [side, words] of [["it-gone", before], ["it-new", after]]) {
        const cell = element("td", words ? side : "it-none");
        cell.append(element("pre", "", words));
        row.append(cell);
      }
    }
    table.append(row);
  }
  if (message.left_out) table.append(element("caption", "", `${message.left_out} more rows are not shown`));
  return table;
}

function render({ model, el }) {
  const state = model.get("state");
  const root = element("section", "ipyagent ia-timeline tex2jax_ignore mathjax_ignore");
  root.setAttribute("aria-label", "Context timeline");
  root.dataset.lmSuppressShortcuts = "true"; // JupyterLab: keys typed here are not commands
  root.addEventListener("keydown", (event) => event.stopPropagation());
  el.append(root);
  if (!state.bars.length) {
    root.append(element("p", "", "No turns yet."));
    return;
  }
  const most = Math.max(...state.bars.map((bar) => bar.tokens), 1);
  const stops = [
    ...state.bars.map((bar) => ({ at: bar.last + 0.5, turn: bar.number })),
    ...state.marks.map((mark) => ({ at: mark.event, event: mark.event })),
  ].sort((one, other) => one.at - other.at);
  const chart = element("div", "it-chart");
  const title = element("div", "it-title");
  title.append(element("strong", "", "Context timeline"), element("span", "it-dim", `top of the chart: ${most.toLocaleString("en")} tokens` + (state.auto ? ` · auto-compact at ${state.auto.toLocaleString("en")}` : "")));
  const slider = element("input", "it-slider");
  slider.type = "range";
  slider.min = "0";
  slider.max = String(stops.length - 1);
  slider.setAttribute("aria-label", "Moment of the session");
  const detail = element("div", "it-detail");
  detail.setAttribute("aria-live", "polite");
  detail.tabIndex = 0;
  let shown = {};
  let waiting = 0;
  const known = new Map();

  const show = (stop) => {
    shown = stop;
    for (const node of chart.querySelectorAll("[aria-pressed]")) node.removeAttribute("aria-pressed");
    const chosen = chart.querySelector(stop.turn ? `[data-turn="${stop.turn}"]` : `[data-event="${stop.event}"]`);
    chosen?.setAttribute("aria-pressed", "true");
    chosen?.scrollIntoView({ block: "nearest", inline: "nearest" });
    const at = stops.findIndex((each) => each.turn === stop.turn && each.event === stop.event);
    slider.value = String(at);
    detail.replaceChildren();
    if (stop.turn) {
      const bar = state.bars[stop.turn - 1];
      slider.setAttribute("aria-valuetext", `turn ${bar.number}`);
      detail.append(element("div", "it-head", `Turn ${bar.number}: ${bar.text}`), element("div", "it-dim", bar.words), shares(state, bar));
      return;
    }
    const mark = state.marks.find((each) => each.event === stop.event);
    slider.setAttribute("aria-valuetext", `turn ${mark.turn}, ${mark.kind}`);
    detail.append(element("div", "it-head", `Turn ${mark.turn}, event ${mark.event}: ${mark.kind}`));
    detail.append(element("div", "it-dim", mark.words + (mark.change ? ` · ${mark.change}` : "")));
    const message = known.get(mark.event);
    if (message) {
      const changed = message.rows.some((row) => !row[2]);
      detail.append(changed ? pairs(message) : element("p", "it-dim", "The messages themselves were not changed by it."));
      return;
    }
    clearTimeout(waiting);
    waiting = setTimeout(() => model.send({ kind: "open", event: mark.event }), 60);
  };
  model.on("msg:custom", (message) => {
    if (!message.rows) return;
    known.set(message.event, message);
    if (shown.event === message.event) show(shown);
  });
  for (const bar of state.bars) chart.append(column(state, bar, most, show));
  slider.addEventListener("input", () => show(stops[Number(slider.value)]));
  root.append(title, chart, slider, legend(state), detail);
  show(stops[stops.length - 1]);
}

export default { render };
