// A list of which only what is in sight is there. Joined after `dom`.
const { element } = dom;
const ROW = 50; // pixels, as in the style sheet
const WINDOW = 100; // rows of one question

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

export default { virtualList };
