// The context timeline: every word is set as text, nothing that Python sends is markup.
const { element } = dom;

function legend(state) {
  const list = element("ul", "ia-legend");
  list.setAttribute("aria-label", "Colours: where the tokens of a bar come from");
  const names = new Map(); // by colour
  for (const [name, color] of state.sources) names.set(color, [...(names.get(color) ?? []), name]);
  for (const [color, all] of names) {
    const item = element("li");
    const swatch = element("span", "ia-swatch");
    swatch.style.background = color;
    item.append(swatch, all.join(", "));
    list.append(item);
  }
  return list;
}

// What the letters above the bars say, of those that there are.
function letters(state, marks, list) {
  const kinds = new Map(); // by letter
  for (const { kind } of marks) {
    const [letter, colour] = state.kinds[kind] ?? ["?", ""];
    if (!kinds.has(letter)) kinds.set(letter, { colour, names: new Set() });
    kinds.get(letter).names.add(kind);
  }
  list.hidden = !kinds.size;
  list.replaceChildren(...[...kinds].map(([letter, { colour, names }]) => {
    const item = element("li");
    const sign = element("span", "it-letter", letter);
    if (colour) sign.style.setProperty("--it-own", colour);
    item.append(sign, [...names].join(", "));
    return item;
  }));
}

function column(state, bar, marks, most, pick) {
  const turn = element("div", "it-turn");
  const row = element("div", "it-marks");
  for (const mark of marks) {
    const [letter, colour] = state.kinds[mark.kind] ?? ["?", ""];
    const button = element("button", "it-mark", letter);
    button.type = "button";
    button.dataset.event = mark.event;
    button.dataset.kind = mark.kind;
    if (colour) button.style.setProperty("--it-own", colour);
    button.addEventListener("click", () => pick({ event: mark.event }));
    row.append(button);
  }
  const button = element("button", "it-bar");
  button.type = "button";
  button.dataset.turn = bar.number;
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
  turn.append(row, button, element("span", "it-number", String(bar.number)));
  tell(turn, bar, marks);
  return turn;
}

// The words of a column, which may come after its figures.
function tell(turn, bar, marks) {
  const button = turn.querySelector(".it-bar");
  button.title = `Turn ${bar.number}: ${bar.text}\n${bar.words}`;
  button.setAttribute("aria-label", `Turn ${bar.number}: ${bar.words}. ${bar.text}`);
  for (const mark of marks) {
    const node = turn.querySelector(`[data-event="${mark.event}"]`);
    node.title = `${mark.kind}: ${mark.words}`;
    node.setAttribute("aria-label", `Turn ${mark.turn}, ${mark.kind}: ${mark.words}`);
  }
}

function shares(state, bar) {
  const table = element("table", "it-shares");
  const total = bar.parts.reduce((sum, tokens) => sum + tokens, 0) || 1;
  bar.parts.forEach((tokens, i) => {
    if (!tokens) return;
    const row = element("tr");
    const name = element("th", "", "");
    name.scope = "row";
    const swatch = element("span", "ia-swatch");
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

const PITCH = 27; // pixels of a column with its gap, when they are too many to be all in the page
const WHOLE = 120; // columns up to which all are
const AHEAD = 12; // columns beside those in sight
const WORDS = 50; // turns whose words are asked for at once

function render({ model, el }) {
  const state = model.get("state");
  const root = element("section", "ipyagent ia-look ia-timeline tex2jax_ignore mathjax_ignore");
  root.setAttribute("aria-label", "Context timeline");
  dom.ownKeys(root);
  root.addEventListener("keydown", (event) => event.stopPropagation());
  el.append(root);

  // -------------------------------------------------------------------- what is known

  let bars = [];
  let marks = [];
  let byEvent = new Map();
  let byTurn = new Map();
  let stops = [];
  let most = 1;
  let asked = new Set();
  const known = new Map(); // before and after, by event
  const take = (more, afresh) => {
    if (afresh) {
      bars = [];
      marks = [];
      byEvent = new Map();
      byTurn = new Map();
      asked = new Set();
      known.clear();
    }
    const [first, rows] = more.bars;
    rows.forEach(([tokens, last, parts], i) => {
      const at = first + i;
      const old = bars[at];
      bars[at] = { number: at + 1, tokens, last, parts, text: old?.text ?? "", words: `${tokens.toLocaleString("en")} tokens` };
      if (old) asked.delete(Math.floor(at / WORDS)); // its words have changed
      else if (asked.has(Math.floor(at / WORDS))) asked.delete(Math.floor(at / WORDS));
    });
    const [begin, found] = more.marks;
    if (found.length) {
      marks.length = Math.min(marks.length, begin);
      for (const [event, kind, turn] of found) {
        const mark = { event, kind, turn, words: "", change: "" };
        marks[marks.length] = mark;
        byEvent.set(event, mark);
        const home = Math.max(turn, 1); // what was decided before the first turn stands above it
        if (!byTurn.has(home)) byTurn.set(home, []);
        byTurn.get(home).push(mark);
      }
    }
    most = 1;
    for (const bar of bars) if (bar) most = Math.max(most, bar.tokens);
    stops = [
      ...bars.filter(Boolean).map((bar) => ({ at: bar.last + 0.5, turn: bar.number })),
      ...marks.map((mark) => ({ at: mark.event, event: mark.event })),
    ].sort((one, other) => one.at - other.at);
  };

  // -------------------------------------------------------------------- parts

  const chart = element("div", "it-chart");
  chart.tabIndex = 0;
  chart.setAttribute("role", "group");
  chart.setAttribute("aria-label", "Turns");
  const before = element("div");
  const after = element("div");
  for (const space of [before, after]) space.style.flex = "none";
  const title = element("div", "it-title ia-head");
  const scale = element("span", "it-dim");
  title.append(element("h3", "ia-title", "Context timeline"), scale);
  const slider = element("input", "it-slider");
  slider.type = "range";
  slider.min = "0";
  slider.setAttribute("aria-label", "Moment of the session");
  const detail = element("div", "it-detail ia-box");
  detail.setAttribute("aria-live", "polite");
  detail.tabIndex = 0;
  const none = element("p", "ia-empty", "No turns yet.");
  const signs = element("ul", "ia-legend it-letters");
  signs.setAttribute("aria-label", "Letters: what was decided in a turn");
  root.append(title, none, chart, slider, legend(state), signs, detail);
  let shown = null;
  let waiting = 0;

  // -------------------------------------------------------------------- the chart: what is in sight

  let columns = new Map(); // by turn
  const marksOf = (bar) => byTurn.get(bar.number) ?? [];
  const wordsFor = (first, last) => {
    for (let part = Math.floor(first / WORDS); part <= Math.floor(last / WORDS); part++) {
      if (asked.has(part)) continue;
      asked.add(part);
      model.send({ kind: "words", from: part * WORDS, count: WORDS });
    }
  };
  let settling = 0;
  const paint = () => {
    const all = bars.length <= WHOLE;
    const first = all ? 0 : Math.max(0, Math.floor(chart.scrollLeft / PITCH) - AHEAD);
    const last = all ? bars.length - 1 : Math.min(bars.length - 1, Math.ceil((chart.scrollLeft + (chart.clientWidth || 800)) / PITCH) + AHEAD);
    before.style.width = `${Math.max(0, first * PITCH - 3)}px`;
    after.style.width = `${Math.max(0, (bars.length - 1 - last) * PITCH - 3)}px`;
    before.hidden = !first;
    after.hidden = last >= bars.length - 1;
    const kept = new Map();
    const nodes = [];
    for (let i = first; i <= last; i++) {
      const bar = bars[i];
      if (!bar) continue;
      const old = columns.get(bar.number);
      const own = marksOf(bar);
      const sign = `${bar.tokens} ${most} ${own.length}`;
      const node = old && old.dataset.sign === sign ? old : column(state, bar, own, most, show);
      node.dataset.sign = sign;
      if (!all) node.style.flex = `0 0 ${PITCH - 3}px`;
      kept.set(bar.number, node);
      nodes.push(node);
    }
    const same = columns.size === kept.size && [...kept].every(([number, node]) => columns.get(number) === node);
    columns = kept;
    if (!same || !before.isConnected) chart.replaceChildren(before, ...nodes, after);
    press();
    clearTimeout(settling);
    settling = setTimeout(() => bars.length && wordsFor(first, Math.max(first, last)), 40); // a fast drag asks only where it rests
  };
  chart.addEventListener("scroll", () => bars.length > WHOLE && requestAnimationFrame(paint), { passive: true });
  const press = () => {
    for (const node of chart.querySelectorAll("[aria-pressed]")) node.removeAttribute("aria-pressed");
    if (shown) chart.querySelector(shown.turn ? `[data-turn="${shown.turn}"]` : `[data-event="${shown.event}"]`)?.setAttribute("aria-pressed", "true");
  };
  const reveal = () => {
    const turn = shown.turn ?? Math.max(byEvent.get(shown.event)?.turn ?? 1, 1);
    if (bars.length > WHOLE) {
      const left = (turn - 1) * PITCH;
      if (left < chart.scrollLeft || left + PITCH > chart.scrollLeft + chart.clientWidth) {
        chart.scrollLeft = left - chart.clientWidth / 2;
        paint();
      }
    } else {
      const node = columns.get(turn);
      if (!node) return;
      if (node.offsetLeft < chart.scrollLeft) chart.scrollLeft = node.offsetLeft;
      else if (node.offsetLeft + node.offsetWidth > chart.scrollLeft + chart.clientWidth) chart.scrollLeft = node.offsetLeft + node.offsetWidth - chart.clientWidth;
    }
  };

  // -------------------------------------------------------------------- one moment

  const draw = () => {
    if (shown.turn) {
      const bar = bars[shown.turn - 1];
      slider.setAttribute("aria-valuetext", `turn ${bar.number}`);
      detail.replaceChildren(element("div", "it-head", `Turn ${bar.number}: ${bar.text}`), element("div", "it-dim", bar.words), shares(state, bar));
      wordsFor(shown.turn - 1, shown.turn - 1);
      return;
    }
    const mark = byEvent.get(shown.event);
    slider.setAttribute("aria-valuetext", `turn ${mark.turn}, ${mark.kind}`);
    wordsFor(Math.max(mark.turn - 1, 0), Math.max(mark.turn - 1, 0));
    const nodes = [element("div", "it-head", `Turn ${mark.turn}, event ${mark.event}: ${mark.kind}`)];
    nodes.push(element("div", "it-dim", mark.words + (mark.change ? ` · ${mark.change}` : "")));
    const message = known.get(mark.event);
    if (message) {
      const changed = message.rows.some((row) => !row[2]);
      nodes.push(changed ? pairs(message) : element("p", "it-dim", "The messages themselves were not changed by it."));
    } else {
      clearTimeout(waiting);
      waiting = setTimeout(() => model.send({ kind: "open", event: mark.event }), 60);
    }
    detail.replaceChildren(...nodes);
  };
  const show = (stop) => {
    shown = stop;
    slider.value = String(stops.findIndex((each) => each.turn === stop.turn && each.event === stop.event));
    reveal();
    press();
    draw();
  };
  chart.addEventListener("keydown", (event) => {
    const bars = [...chart.querySelectorAll(".it-bar")];
    const at = bars.indexOf(event.target);
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: bars.length - 1 }[event.key];
    if (at < 0 || !bars[to]) return;
    event.preventDefault();
    bars[to].focus();
    bars[to].click();
  });
  slider.addEventListener("input", () => stops.length && show(stops[Number(slider.value)]));

  // -------------------------------------------------------------------- together

  const refresh = () => {
    const here = bars.length > 0;
    none.hidden = here;
    for (const node of [chart, slider, detail]) node.hidden = !here;
    const compacts = state.auto ? ` · auto-compact at ${state.auto.toLocaleString("en")}` : "";
    scale.textContent = here ? `tokens in the context after each turn · tallest bar ${most.toLocaleString("en")}${compacts}` : "";
    letters(state, marks.filter(Boolean), signs);
    slider.max = String(Math.max(0, stops.length - 1));
    if (!here) return;
    paint();
    const last = stops[stops.length - 1];
    const there = shown && (shown.turn ? bars[shown.turn - 1] : byEvent.has(shown.event));
    if (!there || following) show(last);
    else {
      slider.value = String(stops.findIndex((each) => each.turn === shown.turn && each.event === shown.event));
      if (shown.turn) draw(); // its figures may have grown
    }
  };
  let following = true; // the newest moment is shown, and the next one will be
  const grow = (more, afresh) => {
    const last = stops[stops.length - 1];
    following = !shown || afresh || (shown.turn === last?.turn && shown.event === last?.event);
    if (more.auto !== undefined) state.auto = more.auto;
    take(more, afresh);
    refresh();
  };
  const heard = (message) => {
    if (message.whole || message.grown) grow(message.whole ?? message.grown, Boolean(message.whole));
    if (message.words) {
      const [first, rows] = message.words;
      rows.forEach(([text, words], i) => bars[first + i] && Object.assign(bars[first + i], { text, words }));
      for (const [event, words, change] of message.told) if (byEvent.has(event)) Object.assign(byEvent.get(event), { words, change });
      for (const [number, node] of columns) if (number > first && number <= first + rows.length) tell(node, bars[number - 1], marksOf(bars[number - 1]));
      const turn = shown?.turn ?? Math.max(byEvent.get(shown?.event)?.turn ?? 1, 1);
      if (shown && turn > first && turn <= first + rows.length) draw();
    }
    if (message.rows) {
      known.set(message.event, message);
      if (shown?.event === message.event) draw();
    }
  };
  model.on("msg:custom", heard);
  const watcher = new ResizeObserver(() => bars.length > WHOLE && chart.clientWidth && paint());
  watcher.observe(chart);
  grow(state, true);
  return () => {
    watcher.disconnect();
    model.off("msg:custom", heard);
  };
}

export default { render };
