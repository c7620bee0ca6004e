// The memory browser. It asks Python for what it shows, a window of rows at a time; every word is set as text
// but the rendered Markdown of the open memory, which Python made and escaped.
const ROW = 48; // pixels, as in the style sheet
const WINDOW = 100; // rows of one question

const { element, button, select } = dom;

let counter = 0;

function render({ model, el }) {
  const own = `ipyagent-memories-${++counter}-${Math.random().toString(36).slice(2)}`;
  const state = model.get("state");
  const root = element("section", "ipyagent ia-look ia-memories tex2jax_ignore mathjax_ignore");
  root.setAttribute("aria-label", "Memories");
  dom.ownKeys(root);
  el.append(root);

  // -------------------------------------------------------------------- asking

  let seq = 0;
  const waiting = new Map();
  const ask = (question, answered) => {
    seq += 1;
    if (answered) waiting.set(seq, answered);
    model.send({ ...question, seq });
  };
  const heard = (message) => {
    if (message.dream !== undefined) showDream(message.dream);
    const answered = waiting.get(message.seq);
    waiting.delete(message.seq);
    if (message.failed) say(message.failed, true);
    answered?.(message);
  };
  model.on("msg:custom", heard);

  // -------------------------------------------------------------------- the bar

  const bar = element("div", "im-bar ia-tools");
  const search = element("input", "im-search ia-input");
  search.type = "search";
  search.placeholder = "Search memories";
  search.setAttribute("aria-label", "Search memories");
  const scope = select("Scope", [["", "all scopes"], ["project", "project"], ["user", "user"]]);
  const type = select("Type", [["", "all types"], ["user", "user"], ["feedback", "feedback"], ["project", "project"], ["reference", "reference"], ["none", "no type"]]);
  const order = select("Order", [["newest", "newest first"], ["oldest", "oldest first"], ["name", "by name"], ["type", "by type"], ["best", "best match in the text"]]);
  const only = element("label", "im-only");
  const problems = element("input");
  problems.type = "checkbox";
  only.append(problems, " with problems");
  const count = element("span", "im-count");
  count.setAttribute("role", "status");
  bar.append(search, scope, type, order, only, count);
  const status = element("div", "im-status ia-status");
  status.setAttribute("role", "status");
  const say = (words, bad, undo) => {
    status.replaceChildren(element("span", bad ? "im-bad" : "", words));
    if (undo) status.append(button("Undo", undo, "im-undo ia-low"));
  };

  // -------------------------------------------------------------------- the list

  const list = element("div", "im-list ia-list");
  list.tabIndex = 0;
  list.setAttribute("role", "listbox");
  list.setAttribute("aria-label", "Memories");
  const sheet = element("div", "im-sheet");
  sheet.setAttribute("role", "presentation");
  list.append(sheet);
  let total = 0;
  let at = -1; // the chosen row
  let generation = 0;
  let windows = new Map(); // number → rows, null while asked for
  const rowAt = (i) => windows.get(Math.floor(i / WINDOW))?.[i % WINDOW];
  const wanted = () => ({ words: search.value.trim(), scope: scope.value, type: type.value, order: order.value, problems: problems.checked });

  const fetchWindow = (number) => {
    if (windows.has(number)) return;
    windows.set(number, null);
    const asked = generation;
    ask({ kind: "rows", ...wanted(), from: number * WINDOW, count: WINDOW }, (message) => {
      if (asked !== generation) return;
      if (!message.rows) {
        windows.delete(number);
        return;
      }
      windows.set(number, message.rows);
      if (message.total !== total || number === 0) {
        total = message.total;
        sheet.style.height = `${total * ROW}px`;
        count.textContent = `${total.toLocaleString("en")} memor${total === 1 ? "y" : "ies"}`;
        at = Math.min(at, total - 1);
      }
      paint();
    });
  };

  const fill = (node, i) => {
    const row = rowAt(i);
    node.id = `${own}-${i}`;
    node.style.top = `${i * ROW}px`;
    node.setAttribute("aria-setsize", String(total));
    node.setAttribute("aria-posinset", String(i + 1));
    node.setAttribute("aria-selected", String(i === at));
    node.dataset.row = i;
    if (!row) {
      node.replaceChildren(element("span", "im-dim", "…"));
      return;
    }
    const [path, title, description, kind, place, age, source, wrong] = row;
    const head = element("div");
    head.append(element("span", "ia-name", title));
    if (kind) head.append(element("span", "im-kind ia-tag", kind));
    if (place !== "project") head.append(element("span", "im-kind ia-tag im-place", place));
    if (wrong) {
      const mark = element("span", "im-wrong", "!");
      mark.setAttribute("role", "img");
      mark.setAttribute("aria-label", `problem: ${wrong}`);
      mark.title = wrong;
      head.append(mark);
    }
    head.append(element("span", "im-age", age));
    node.title = [path, source, wrong].filter(Boolean).join("\n");
    node.replaceChildren(head, element("div", "ia-about", description));
  };

  const paint = () => {
    const first = Math.max(0, Math.floor(list.scrollTop / ROW) - 4);
    const last = Math.min(total - 1, Math.ceil((list.scrollTop + list.clientHeight) / ROW) + 4);
    for (let number = Math.floor(first / WINDOW); number <= Math.floor(Math.max(last, 0) / WINDOW); number++) later(number);
    const nodes = new Map([...sheet.children].map((node) => [Number(node.dataset.row), node]));
    for (const [i, node] of nodes) if (i < first || i > last) node.remove();
    for (let i = first; i <= last; i++) {
      let node = nodes.get(i);
      if (!node) {
        node = element("div", "im-row ia-row");
        node.setAttribute("role", "option");
        sheet.append(node);
      }
      fill(node, i);
    }
    if (at >= first && at <= last) list.setAttribute("aria-activedescendant", `${own}-${at}`);
    else list.removeAttribute("aria-activedescendant");
    if (!total && windows.get(0)) sheet.replaceChildren(element("p", "im-none ia-empty", wanted().words || scope.value || type.value || problems.checked ? "No memory fits." : "No memories yet: say “remember …” to the agent."));
    else sheet.querySelector(".im-none")?.remove();
  };
  let settling = 0;
  const later = (number) => {
    // a fast drag of the scroll bar passes by many windows; only where it rests is asked for
    if (windows.has(number)) return;
    clearTimeout(settling);
    settling = setTimeout(() => {
      const first = Math.floor(list.scrollTop / ROW / WINDOW);
      const last = Math.floor((list.scrollTop + list.clientHeight) / ROW / WINDOW);
      for (let each = first; each <= last; each++) if (each * WINDOW < Math.max(total, 1)) fetchWindow(each);
    }, 30);
  };
  const reload = (keep) => {
    generation += 1;
    const old = windows;
    windows = new Map();
    if (!keep) {
      at = -1;
      list.scrollTop = 0;
      fetchWindow(0);
    } else {
      const seen = new Set([0, Math.floor(list.scrollTop / ROW / WINDOW), Math.floor((list.scrollTop + list.clientHeight) / ROW / WINDOW)]);
      for (const number of seen) if (old.has(number)) fetchWindow(number);
    }
  };
  const move = (i) => {
    if (!total) return;
    at = Math.max(0, Math.min(total - 1, i));
    const top = at * ROW;
    if (top < list.scrollTop) list.scrollTop = top;
    else if (top + ROW > list.scrollTop + list.clientHeight) list.scrollTop = top + ROW - list.clientHeight;
    paint();
  };
  list.addEventListener("scroll", () => requestAnimationFrame(paint));
  sheet.addEventListener("click", (event) => {
    const node = event.target.closest(".im-row");
    if (!node) return;
    move(Number(node.dataset.row));
    const row = rowAt(at);
    if (row) open(row[0]);
  });
  list.addEventListener("keydown", (event) => {
    const page = Math.max(1, Math.floor(list.clientHeight / ROW) - 1);
    const steps = { ArrowDown: at + 1, ArrowUp: at - 1, PageDown: at + page, PageUp: at - page, Home: 0, End: total - 1 };
    const row = rowAt(at);
    if (event.key in steps) move(steps[event.key]);
    else if ((event.key === "Enter" || event.key === " ") && row) open(row[0], true);
    else if (event.key === "Delete" && row) forget(row[0]);
    else return;
    event.preventDefault();
  });
  let typing = 0;
  search.addEventListener("input", () => {
    clearTimeout(typing);
    typing = setTimeout(() => reload(), 120);
  });
  search.addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown") {
      list.focus();
      move(Math.max(at, 0));
    } else if (event.key === "Escape" && search.value) {
      search.value = "";
      reload();
    } else return;
    event.preventDefault();
  });
  for (const control of [scope, type, order, problems]) control.addEventListener("change", () => reload());

  // -------------------------------------------------------------------- one memory

  const detail = element("div", "im-detail ia-box");
  detail.tabIndex = -1;
  detail.setAttribute("role", "region");
  detail.setAttribute("aria-label", "Open memory");
  detail.append(element("p", "im-dim", "Choose a memory to read it."));
  let shown = null; // the open memory
  let tab = "read";
  let editor = null;
  const dirty = () => editor !== null && editor.value !== shown.text;

  const open = (path, focus) => {
    if (dirty()) return shown.path === path ? editor.focus() : say(`Save or cancel your changes of ${shown.name} first.`, true);
    ask({ kind: "open", path }, (message) => {
      if (!message.opened || dirty()) return; // what was typed meanwhile stays
      if (!shown || shown.path !== path) tab = "read";
      shown = message.opened;
      editor = null;
      draw();
      if (focus) detail.focus();
    });
  };
  const close = () => {
    shown = null;
    editor = null;
    detail.replaceChildren(element("p", "im-dim", "Choose a memory to read it."));
  };
  const changed = (message) => {
    if (!message.changed) return;
    const undo = () => ask({ kind: "undo", number: message.number }, (again) => changed(again));
    say(message.changed, false, undo);
    reload(true);
    editor = null;
    if (!message.gone) open(message.path);
    else if (shown?.path === message.path) close();
  };
  const forget = (path) => {
    if (dirty()) return say(`Save or cancel your changes of ${shown.name} first.`, true);
    ask({ kind: "forget", path }, changed);
  };
  const reading = () => {
    const body = element("div", "im-text");
    body.innerHTML = shown.html;
    if (shown.cut) body.append(element("p", "im-dim", "The rest is too long to be shown here; the file has it."));
    return [body];
  };
  const editing = () => {
    editor = element("textarea", "im-edit ia-input");
    editor.value = shown.text;
    editor.spellcheck = false;
    editor.setAttribute("aria-label", `Text of ${shown.name}, with its frontmatter`);
    const save = () => ask({ kind: "save", path: shown.path, text: editor.value, digest: shown.digest }, (message) => (message.failed ? editor?.focus() : changed(message)));
    editor.addEventListener("keydown", (event) => {
      if (event.isTrusted && event.key === "s" && (event.ctrlKey || event.metaKey)) {
        event.preventDefault();
        save();
      }
    });
    const row = element("div", "im-actions");
    const cancel = () => {
      editor = null;
      tab = "read";
      draw();
    };
    row.append(button("Save", save, "ia-primary"), button("Cancel", cancel));
    return [editor, row];
  };
  const history = () => {
    if (!shown.versions.length) return [element("p", "im-dim", "No earlier version.")];
    const rows = element("ul", "im-versions");
    const changes = element("div", "im-diff");
    changes.setAttribute("role", "region");
    changes.setAttribute("aria-label", "Changes since that version");
    changes.setAttribute("aria-live", "polite");
    for (const [revision, time, by, how, size] of shown.versions) {
      const item = element("li");
      const words = element("span", "im-version", `until ${time}, then ${how} by ${by} (${size.toLocaleString("en")} bytes)`);
      const look = button("Changes since", () => {
        for (const other of rows.querySelectorAll("[aria-pressed]")) other.setAttribute("aria-pressed", String(other === look));
        ask({ kind: "diff", path: shown.path, revision }, (message) => {
          if (message.diff) changes.replaceChildren(diff(message.diff));
        });
      });
      look.setAttribute("aria-pressed", "false");
      item.append(words, look, button("Restore", () => ask({ kind: "restore", path: shown.path, revision }, changed), "ia-low"));
      rows.append(item);
    }
    return [rows, changes];
  };
  const diff = (lines) => {
    if (!lines.length) return element("p", "im-dim", "The same text as now.");
    const pre = element("pre", "im-lines");
    for (const [sign, text] of lines) {
      const kind = { "+": "im-new", "-": "im-old", "@": "im-at" }[sign] || "";
      pre.append(element("span", kind, `${sign === "@" ? "" : sign} ${text}\n`));
    }
    return pre;
  };
  const draw = () => {
    const head = element("div", "im-open");
    const title = element("h3", "", shown.title);
    head.append(title, element("div", "im-dim", [shown.name, ...shown.facts].join(" · ")));
    for (const wrong of shown.problems) head.append(element("div", "im-bad", `! ${wrong}`));
    const strip = element("div", "im-tabs ia-tabs");
    const tabs = element("div", "ia-tablist");
    tabs.setAttribute("role", "tablist");
    tabs.setAttribute("aria-label", "What to do with this memory");
    const panel = element("div", "im-panel");
    panel.setAttribute("role", "tabpanel");
    panel.id = `${own}-panel`;
    const parts = { read: ["Read", reading], edit: ["Edit", editing], history: [`History (${shown.versions.length})`, history] };
    const names = Object.keys(parts).filter((name) => name !== "edit" || !shown.cut);
    const choose = (name) => {
      if (dirty() && name !== "edit") return say(`Save or cancel your changes of ${shown.name} first.`, true);
      tab = name;
      editor = null;
      for (const node of tabs.querySelectorAll("[role=tab]")) {
        const on = node.dataset.tab === name;
        node.setAttribute("aria-selected", String(on));
        node.tabIndex = on ? 0 : -1;
      }
      panel.setAttribute("aria-labelledby", `${own}-${name}`);
      panel.replaceChildren(...parts[name][1]());
    };
    for (const name of names) {
      const node = button(parts[name][0], () => choose(name), "ia-tab");
      node.id = `${own}-${name}`;
      node.dataset.tab = name;
      node.setAttribute("role", "tab");
      node.setAttribute("aria-controls", panel.id);
      node.addEventListener("keydown", (event) => {
        const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
        if (!step) return;
        event.preventDefault();
        const next = names[(names.indexOf(name) + step + names.length) % names.length];
        choose(next);
        tabs.querySelector(`[data-tab="${next}"]`).focus();
      });
      tabs.append(node);
    }
    const path = shown.path;
    strip.append(tabs, button("Forget", () => forget(path), "ia-quiet ia-risky ia-end"));
    detail.replaceChildren(head, strip, panel);
    choose(names.includes(tab) ? tab : "read");
  };
  detail.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && !dirty()) list.focus();
  });

  // -------------------------------------------------------------------- the recall tester, the dream

  const tester = element("details", "im-fold");
  tester.append(element("summary", "", "What would be recalled?"));
  const query = element("input", "im-search ia-input");
  query.placeholder = "A request, as you would write it";
  query.setAttribute("aria-label", "A request to try recall with");
  const found = element("div", "im-tried");
  found.setAttribute("aria-live", "polite");
  const attempt = () => {
    if (query.value.trim()) ask({ kind: "recall", query: query.value }, (message) => message.tried && tried(message.tried, message.why));
  };
  query.addEventListener("keydown", (event) => event.isTrusted && event.key === "Enter" && !event.isComposing && attempt());
  const asking = element("div", "im-actions");
  asking.append(query, button("Try", attempt, "ia-primary"));
  tester.append(asking, found);
  const tried = (rows, why) => {
    if (!rows.length) return found.replaceChildren(element("p", "im-dim", why ? `Nothing would be recalled: ${why}` : "Nothing fits: no memory would be shown."));
    const table = element("table", "ia-table");
    const head = element("tr");
    for (const words of ["", "memory", "score", "why"]) {
      const cell = element("th", "", words);
      cell.scope = "col";
      head.append(cell);
    }
    table.append(head);
    for (const [path, name, score, why, picked] of rows) {
      const row = element("tr", picked ? "im-picked" : "");
      const link = element("td");
      link.append(button(name, () => open(path, true), "ia-link"));
      row.append(element("td", "", picked ? "✓ shown" : "not shown"), link, element("td", "ia-number", score.toFixed(2)), element("td", "", why));
      table.append(row);
    }
    found.replaceChildren(table);
  };
  const dream = element("details", "im-fold");
  const dreamHead = element("summary", "", "Tidying (dream)");
  const dreamBody = element("div", "im-dream");
  const stop = button("Stop", () => {
    stop.disabled = true;
    ask({ kind: "stop-dream" });
  });
  dream.append(dreamHead, dreamBody, stop);
  const showDream = (now) => {
    dream.hidden = now === null || now === undefined;
    if (dream.hidden) return;
    const running = now.status === "running";
    dreamHead.textContent = `Tidying (dream): ${now.status || "not yet"}${running && now.phase ? `, ${now.phase}` : ""}`;
    const rows = [];
    if (now.message) rows.push(element("p", "", now.message));
    if (running || now.turns.length) rows.push(element("p", "im-dim", `${now.seconds} s · newest turns: ${now.turns.length} · files touched: ${now.files.length}`));
    if (now.files.length) rows.push(element("p", "", now.files.join(", ")));
    if (now.turns.length) {
      const turns = element("ol", "im-turns");
      for (const turn of now.turns) turns.append(element("li", "", turn));
      rows.push(turns);
    }
    dreamBody.replaceChildren(...rows);
    stop.hidden = !running;
    if (!running) stop.disabled = false;
  };
  showDream(state.dream);

  // -------------------------------------------------------------------- together

  root.addEventListener("keydown", (event) => {
    event.stopPropagation();
    if (event.key === "/" && !event.target.matches("input, textarea, select")) {
      event.preventDefault();
      search.focus();
    }
  });
  const body = element("div", "im-body");
  body.append(list, detail);
  root.append(bar);
  for (const why of state.missing) root.append(element("p", "im-missing", why));
  root.append(body, status, tester, dream);
  const watcher = new ResizeObserver(() => paint());
  watcher.observe(list);
  reload();
  return () => {
    watcher.disconnect();
    model.off("msg:custom", heard);
  };
}

export default { render };
