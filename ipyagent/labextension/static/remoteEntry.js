// ipyagent in JupyterLab and Notebook 7: the open notebook for the agent, a button at errors, the panel at the side.
// Written by hand as the container that module federation expects: no build, no Node, no dependencies.
//
// Each notebook panel has a link to its own kernel and to no other: a comm whose name is known beforehand, so that
// nothing is opened and a kernel without ipyagent hears one question for comms and nothing else. Whatever comes from
// the kernel is set as text. What counts as consent is a press by a person (`isTrusted`).
(() => {
  "use strict";
  const TARGET = "ipyagent.page";
  const OURS = /^\s*%%(?:agent|ipyagent)\b/;
  const TEXT = "text/x-ipythongfm";
  const MOST = 20000; // characters of one output that the agent is given of the open notebook
  const HINT = "Ask the agent (@ variable or file, / skill)";

  // ---------------------------------------------------------------- Lab's own packages
  let scope = {};
  const use = async (name) => {
    const versions = scope[name];
    if (!versions) return {};
    const loaded = Object.keys(versions).find((version) => versions[version].loaded) ?? Object.keys(versions)[0];
    return (await versions[loaded].get())();
  };

  // ---------------------------------------------------------------- elements: words are set as text, never as markup
  const element = (tag, kind, text) => {
    const node = document.createElement(tag);
    if (kind) node.className = kind;
    if (text !== undefined) node.textContent = text;
    return node;
  };
  // A press that a script of the page made does nothing; keys typed on it are no commands of the notebook.
  const button = (text, act, kind = "ipyagent-button") => {
    const node = element("button", kind, text);
    node.type = "button";
    node.dataset.lmSuppressShortcuts = "true";
    node.addEventListener("click", (event) => {
      event.stopPropagation();
      if (event.isTrusted) act(event);
    });
    node.addEventListener("mousedown", (event) => event.stopPropagation());
    return node;
  };
  const unique = () => globalThis.crypto?.randomUUID?.() ?? `${Date.now()}-${Math.random()}`;
  const string = (value) => (typeof value === "string" ? value : "");

  // ---------------------------------------------------------------- one notebook panel and its kernel
  class Link {
    constructor(app, panel, changed) {
      this.app = app;
      this.panel = panel;
      this.changed = changed; // what is known of the kernel is another now
      this.page = unique();
      this.seq = 0;
      this.known = false; // whether the kernel has ipyagent
      this.status = {};
      this.mark = ""; // of the board, once it was asked for
      this.comm = null;
      this.claimed = new Map(); // edits that this page has taken
      this.proposals = new Map();
      this.asked = new Map();
      this.steps = []; // the agent's changes on stacks of undo, the newest last
      const session = panel.sessionContext;
      session.kernelChanged.connect(this.attach, this);
      session.statusChanged.connect(this.attach, this);
      session.connectionStatusChanged.connect(this.attach, this);
      panel.disposed.connect(this.leave, this);
      this.onHide = () => this.known && this.say({ kind: "bye" });
      window.addEventListener("pagehide", this.onHide);
      this.attach();
    }

    get notebook() {
      return this.panel.content;
    }

    get shared() {
      return this.panel.content.model?.sharedModel ?? null;
    }

    // Lab drops all comms when a kernel restarts, so this is looked at with every status.
    attach() {
      const kernel = this.panel.sessionContext.session?.kernel ?? null;
      if (kernel === this.kernel && (!kernel || (this.comm && !this.comm.isDisposed))) return;
      this.kernel = kernel;
      this.comm = null;
      this.forget();
      if (!kernel || kernel.isDisposed) return;
      try {
        this.comm = kernel.createComm(TARGET, TARGET); // opens nothing: it listens
      } catch {
        this.kernel = undefined; // another connection of this page has the kernel's comms; asked again later
        return;
      }
      this.comm.onMsg = (message) => this.hear(message.content?.data ?? {});
      kernel
        .requestCommInfo({ target_name: TARGET })
        .then((reply) => {
          if (this.kernel === kernel && TARGET in (reply.content?.comms ?? {})) this.hello();
        })
        .catch(() => {}); // the kernel went
    }

    hello() {
      this.say({ kind: "hello", path: this.panel.context.localPath ?? this.panel.context.path });
    }

    forget() {
      this.known = false;
      this.status = {};
      this.mark = "";
      this.claimed.clear();
      for (const call of [...this.proposals.keys()]) this.settle(call);
      this.changed(this);
    }

    leave() {
      this.onHide();
      window.removeEventListener("pagehide", this.onHide);
      const session = this.panel.sessionContext;
      session?.kernelChanged.disconnect(this.attach, this);
      session?.statusChanged.disconnect(this.attach, this);
      session?.connectionStatusChanged.disconnect(this.attach, this);
    }

    say(data) {
      if (!this.comm || this.comm.isDisposed) return;
      try {
        this.comm.send({ ...data, page: this.page, seq: ++this.seq });
      } catch {
        // the connection is gone: the kernel waits a short time and goes on without this page
      }
    }

    // A question to the kernel with one answer.
    ask(data) {
      return new Promise((told) => {
        const id = unique();
        this.asked.set(id, told);
        setTimeout(() => this.asked.delete(id) && told(null), 4000);
        this.say({ ...data, id });
      });
    }

    hear(data) {
      const mine = data.page === undefined || data.page === this.page;
      switch (mine ? data.kind : "") {
        case "hello":
          this.hello();
          break;
        case "status":
          this.known = true;
          this.status = data;
          this.changed(this);
          break;
        case "board":
          this.mark = string(data.mark);
          this.changed(this);
          break;
        case "gone":
          this.forget();
          break;
        case "told":
          this.asked.get(data.id)?.(data);
          this.asked.delete(data.id);
          break;
        case "read":
          this.answer(data.id, () => this.read(string(data.cell)));
          break;
        case "offer": // who does it is settled before anything is done; `do` comes only to the page that has claimed
          if (this.shared && !this.panel.context.model.readOnly) this.claimed.set(data.id, true);
          this.say({ kind: "reply", id: data.id, claimed: this.claimed.has(data.id) });
          break;
        case "do":
          if (!this.claimed.delete(data.id)) break;
          this.answer(`${data.id}.done`, () => {
            this.edit(data.changes ?? []);
            return this.read("");
          });
          break;
        case "propose":
          this.propose(data);
          break;
        case "settle":
          this.settle(data.call);
          break;
      }
    }

    async answer(id, work) {
      let reply;
      try {
        reply = await work();
      } catch (problem) {
        reply = { failed: string(problem?.message) || String(problem) };
      }
      this.say({ kind: "reply", id, ...reply });
    }

    // ------------------------------------------------------------ the open notebook

    // All of it as it stands in the page; outputs only as far as somebody reads them.
    read(whole) {
      const model = this.panel.context.model;
      const data = model.toJSON();
      for (const cell of data.cells) {
        if (cell.cell_type === "code") cell.outputs = cell.outputs.map((output) => shortened(output, cell.id === whole));
      }
      return { notebook: JSON.stringify(data), dirty: Boolean(model.dirty) };
    }

    // Changes of cells, each one step for undo. All are looked at before the first is made.
    edit(changes) {
      const shared = this.shared;
      const at = (id) => shared.cells.findIndex((cell) => cell.id === id);
      const made = new Set();
      for (const change of changes) {
        for (const id of [change.cell, change.after].filter(Boolean))
          if (at(id) < 0 && !made.has(id)) throw new Error(`cell ${id} is not in the open notebook any more`);
        if (change.action === "insert") made.add(change.id);
        const cell = change.action === "insert" ? null : shared.cells[at(change.cell)];
        if (cell && change.base !== undefined && cell.getSource() !== change.base)
          throw new Error(`cell ${change.cell} was changed in the open page since it was read`);
        if (change.action === "delete" && cell?.getMetadata("deletable") === false)
          throw new Error(`cell ${change.cell} is protected from deletion`);
        if (change.action === "replace" && cell?.getMetadata("editable") === false)
          throw new Error(`cell ${change.cell} is read-only`);
      }
      for (const change of changes) {
        const index = change.cell ? at(change.cell) : -1;
        const place = change.after ? at(change.after) + 1 : 0;
        if (change.action === "insert") {
          const code = change.cell_type === "code" ? { outputs: [], execution_count: null } : {};
          const cell = { cell_type: change.cell_type, id: change.id, source: change.source, metadata: {}, ...code };
          this.step(shared, () => shared.insertCell(place, cell));
        } else if (change.action === "replace") {
          this.step(shared.cells[index], () => shared.cells[index].setSource(change.source));
        } else if (change.action === "move") {
          this.step(shared, () => shared.moveCell(index, place > index ? place - 1 : place));
        } else if (change.action === "delete") {
          this.step(shared, () => shared.deleteCell(index));
        } else if (change.action === "outputs") {
          const widget = this.notebook.widgets.find((one) => one.model.id === change.cell);
          widget?.model.outputs?.fromJSON(change.outputs);
        }
      }
      this.changed(this);
    }

    // One step of its own: what came before and what follows within half a second would else be one with it.
    step(owner, change) {
      const undo = owner.undoManager;
      undo?.stopCapturing();
      owner.transact(change);
      undo?.stopCapturing();
      const made = undo?.undoStack.at(-1);
      if (made) this.steps.push({ undo, made });
    }

    // The agent's newest change, as long as nothing newer stands before it on its stack.
    get undoable() {
      const step = this.steps.at(-1);
      return step && step.undo.undoStack.at(-1) === step.made ? step : null;
    }

    undo() {
      if (this.undoable) this.steps.pop().undo.undo();
      else this.steps = [];
      this.decorate();
    }

    // ------------------------------------------------------------ diffs in the cells they concern

    propose({ call, digest, changes }) {
      this.settle(call);
      const parts = changes.map((change) => ({ change, node: null, verdict: "" }));
      const proposal = { call, digest, parts };
      const decide = (chosen, verdict) => {
        for (const part of chosen) part.verdict = part.verdict || verdict;
        draw();
        if (parts.some((part) => !part.verdict)) return;
        const rejected = parts.flatMap((part, number) => (part.verdict === "reject" ? [number] : []));
        this.say({ kind: "answer", call, digest, rejected });
      };
      const draw = () => {
        parts.forEach((part, number) => {
          part.node ??= element("div", "ipyagent-diff");
          part.node.setAttribute("role", "group");
          part.node.setAttribute("aria-label", "A change that the agent proposes");
          const head = element("div", "ipyagent-diff-head");
          head.append(element("span", "ipyagent-diff-title", string(part.change.title)));
          if (part.verdict) head.append(element("em", "", part.verdict === "accept" ? "accepted" : "rejected"));
          else {
            if (!part.change.cut) head.append(button("Accept", () => decide([part], "accept"), "ipyagent-button ipyagent-accept"));
            head.append(button("Reject", () => decide([part], "reject"), "ipyagent-button ipyagent-reject"));
          }
          const open = parts.filter((one) => !one.verdict).length;
          if (number === parts.findIndex((one) => !one.verdict) && open > 1) {
            if (!parts.some((one) => one.change.cut))
              head.append(button(`Accept all ${open}`, () => decide(parts, "accept"), "ipyagent-button ipyagent-accept-all"));
            head.append(button("Reject all", () => decide(parts, "reject"), "ipyagent-button ipyagent-reject-all"));
          }
          if (part.change.cut && !part.verdict)
            head.append(element("span", "ipyagent-diff-cut", "Too long to accept here: the card in the panel shows all."));
          const text = element("pre", "ipyagent-diff-text");
          text.tabIndex = 0;
          for (const row of string(part.change.diff).split("\n")) {
            const sign = row[0];
            if (row.startsWith("@@")) continue;
            const kind = sign === "+" ? "ipyagent-added" : sign === "-" ? "ipyagent-removed" : "";
            text.append(element("span", kind, `${row}\n`));
          }
          part.node.replaceChildren(head, text);
          part.node.dataset.lmSuppressShortcuts = "true";
        });
      };
      draw();
      this.proposals.set(call, proposal);
      this.place();
    }

    // Below the cell that a change concerns; a new cell below the one that it will follow.
    place() {
      for (const { parts } of this.proposals.values()) {
        let before = null;
        for (const { change, node } of parts) {
          const widgets = this.notebook.widgets;
          const widget = widgets.find((one) => one.model.id === (change.cell || change.after));
          const host = widget?.node ?? before?.parentNode ?? (change.after === "" ? widgets[0] : widgets.at(-1))?.node;
          if (host && node.parentNode !== host) {
            if (before?.parentNode === host) before.after(node);
            else if (!change.cell && change.after === "") host.prepend(node);
            else host.append(node);
          }
          before = node;
        }
      }
    }

    settle(call) {
      for (const { node } of this.proposals.get(call)?.parts ?? []) node?.remove();
      this.proposals.delete(call);
    }

    // ------------------------------------------------------------ what cells look like

    decorate() {
      this.panel.node.classList.toggle("ipyagent-on", this.known);
      this.notebook.node.classList.toggle("ipyagent-undo", Boolean(this.undoable)); // Ctrl+Z between cells is ours then
      for (const cell of this.notebook.widgets) {
        if (cell.model.type !== "code") continue;
        this.dress(cell);
        const ours = cell.node.classList.contains("ipyagent-cell");
        const outputs = cell.model.outputs;
        for (let i = 0; i < outputs.length; i++) {
          const node = outputs.get(i).type === "error" ? cell.outputArea?.widgets[i]?.node : null;
          const output = node?.querySelector(".jp-OutputArea-output");
          const there = output?.querySelector(":scope > .ipyagent-fix");
          if (ours || !this.known || kept(cell)) there?.remove();
          else if (output && !there) output.append(button("Fix with agent", () => this.fix(cell), "ipyagent-button ipyagent-fix"));
        }
      }
      this.place();
    }

    // A request reads as text: Markdown, in the font of prose, wrapped, with a hint as long as it is empty.
    dress(cell) {
      const source = cell.model.sharedModel.getSource();
      const ours = OURS.test(source);
      const was = cell.node.classList.contains("ipyagent-cell");
      if (ours) {
        if (cell.model.mimeType !== TEXT) cell.model.mimeType = TEXT;
        if (!cell.ipyagentMime) {
          // the kernel's language is told to every cell when it is known
          cell.ipyagentMime = () => OURS.test(cell.model.sharedModel.getSource()) && this.dress(cell);
          cell.model.mimeTypeChanged.connect(cell.ipyagentMime);
        }
        const content = cell.node.querySelector(".cm-content");
        content?.setAttribute("spellcheck", "true");
        const empty = source.trim().split("\n").length === 1 && /^\s*%%\w+[^\n]*\n\s*$/.test(source);
        cell.node.classList.toggle("ipyagent-empty", empty);
        // an editor is made when its cell comes into sight, and Lab sets the options of all anew
        if (cell.editor && !cell.editor.getOption("lineWrap")) cell.editor.setOption("lineWrap", true);
      }
      if (ours === was) return;
      cell.node.classList.toggle("ipyagent-cell", ours);
      if (!ours) {
        cell.editor?.setOption("lineWrap", Boolean(this.notebook.editorConfig?.code?.lineWrap));
        cell.node.classList.remove("ipyagent-empty");
        cell.model.mimeType = this.notebook.codeMimetype;
      }
    }

    // `@` and `/` complete while they are typed, by the kernel's own completer.
    typed(event) {
      this.wanted = null;
      if (!this.known || !event.isTrusted || !event.inputType?.startsWith("insert")) return;
      const wanted = (this.wanted = {});
      setTimeout(() => this.wanted === wanted && this.complete(wanted), 120); // once the editor has what was typed
    }

    async complete(wanted) {
      const cell = this.notebook.activeCell;
      const kernel = this.kernel;
      if (this.panel.isDisposed || !kernel || !cell?.editor?.hasFocus() || !cell.node.classList.contains("ipyagent-cell")) return;
      const at = cell.editor.getCursorPosition();
      const before = (cell.editor.getLine(at.line) ?? "").slice(0, at.column);
      if (!at.line || !(/(^|[^\w@.])@[\w./:~-]*$/.test(before) || (at.line === 1 && /^\s*\/[\w:-]*$/.test(before)))) return;
      // Lab gives a kernel one second, and a first answer may take longer: it is had before Lab asks.
      const code = cell.model.sharedModel.getSource();
      const cursor = [...code.slice(0, cell.editor.getOffsetAt(at))].length;
      await kernel.requestComplete({ code, cursor_pos: cursor }).catch(() => {});
      const now = this.wanted === wanted && !this.panel.isDisposed && cell.editor?.hasFocus() ? cell.editor.getCursorPosition() : null;
      if (now?.line !== at.line || now.column !== at.column || document.querySelector(".jp-Completer:not(.lm-mod-hidden)")) return;
      this.app.commands.execute("completer:invoke-notebook").catch(() => {});
    }

    // Escape closes what completes, and it stays closed.
    hush(event) {
      if (event.key === "Escape") this.wanted = null;
    }

    // ------------------------------------------------------------ requests about a cell

    // A `%%agent` cell below, which runs at once or waits for words.
    // Nothing once its cell or its page is gone, and it runs in this notebook, whichever is in front by now.
    async request(cell, text, run) {
      const { NotebookActions } = await use("@jupyterlab/notebook");
      const shared = this.panel.isDisposed ? null : this.shared;
      const at = shared ? this.notebook.widgets.indexOf(cell) + 1 : 0;
      if (at < 1) return null;
      const source = text.startsWith("%") ? text : `%%agent\n${text}`;
      if (shared.cells[at]?.getSource() !== source) {
        const metadata = { trusted: true };
        this.step(shared, () => shared.insertCell(at, { cell_type: "code", source, metadata, outputs: [], execution_count: null }));
      }
      this.notebook.deselectAll();
      this.notebook.activeCellIndex = at;
      this.decorate();
      if (run) return NotebookActions.run(this.notebook, this.panel.sessionContext);
      this.notebook.mode = "edit";
      const made = this.notebook.widgets[at];
      const lines = source.split("\n");
      made.ready?.then(() => made.editor?.setCursorPosition({ line: lines.length - 1, column: lines.at(-1).length }));
      return null;
    }

    // How a request names a cell: by its number where the kernel ran it as it stands, else by its text.
    async named(cell) {
      const count = cell.model.executionCount;
      const source = cell.model.sharedModel.getSource();
      const told = count ? await this.ask({ kind: "ran", count, source }) : null;
      if (told?.ran) return { name: `@cell:${count}`, text: "" };
      const fence = source.includes("```") ? "~~~~" : "```";
      return { name: "this cell", text: `\n\n${fence}\n${source}\n${fence}` };
    }

    async fix(cell) {
      const found = cell.model.outputs?.toJSON().findLast((output) => output.output_type === "error");
      const { name, text } = await this.named(cell);
      const error = found && text ? `\n\nIt ended in ${string(found.ename)}: ${string(found.evalue)}` : "";
      return this.request(cell, `Find out why ${name} failed and fix it.${text}${error}`, true);
    }

    async explain(cell) {
      const { name, text } = await this.named(cell);
      return this.request(cell, `Explain ${name} step by step.${text}`, true);
    }

    async about(cell) {
      const chosen = window.getSelection()?.toString().trim() ?? "";
      if (cell.model.type !== "code") return this.request(cell, chosen ? `${quoted(chosen)}\n\n` : "", false);
      const { name, text } = await this.named(cell);
      const place = name.startsWith("@") ? `About ${name}` : `About this cell:${chosen ? "" : text}`;
      return this.request(cell, chosen ? `${place}\n\n${quoted(chosen)}\n\n` : `${place}\n`, false);
    }
  }

  // What its author keeps from the agent is not sent by a button either.
  const kept = (cell) =>
    [cell.model.getMetadata("tags")].flat().includes("agent-hide") || /^\s*#\s*agent-hide\b/.test(cell.model.sharedModel.getSource());
  const quoted = (text) => text.split("\n").map((row) => `> ${row}`).join("\n");

  // An output with long text cut and pictures left out, but of the one cell that was asked for.
  function shortened(value, whole, key = "") {
    if (typeof value === "string") {
      if (/^(image|video|audio|application)\//.test(key) && !whole) return "";
      return value.length > MOST && !(whole && key.startsWith("image/")) ? `${value.slice(0, MOST)}…` : value;
    }
    if (Array.isArray(value)) return value.slice(0, 2000).map((item) => shortened(item, whole, key));
    if (value && typeof value === "object") {
      if (/^application\/(?!vnd\.jupyter\.)/.test(key)) return {};
      return Object.fromEntries(Object.entries(value).map(([name, item]) => [name, shortened(item, whole, name)]));
    }
    return value;
  }

  // ---------------------------------------------------------------- what stands around the notebooks

  const STYLE = `
.ipyagent-button { font: inherit; font-size: 12px; line-height: 1.5; padding: 0 8px; cursor: pointer; border-radius: 9px;
  border: 1px solid var(--jp-border-color1); background: var(--jp-layout-color1); color: var(--jp-ui-font-color1); white-space: nowrap; }
.ipyagent-button:hover { background: var(--jp-layout-color2); }
.ipyagent-button:focus-visible { outline: 2px solid var(--jp-brand-color1); outline-offset: 1px; }
.ipyagent-button:disabled { opacity: .5; cursor: default; }
.ipyagent-fix { display: none; margin: 4px 0 2px; font-family: var(--jp-ui-font-family); }
.ipyagent-on .ipyagent-fix { display: inline-block; }
.ipyagent-cell .cm-content { font-family: var(--jp-content-font-family); font-size: var(--jp-content-font-size1); }
.ipyagent-cell .cm-line:first-child { font-family: var(--jp-code-font-family); font-size: var(--jp-code-font-size); color: var(--jp-ui-font-color2); }
.ipyagent-empty .cm-line:last-child::before { content: "${HINT}"; position: absolute; pointer-events: none;
  color: var(--jp-ui-font-color2); right: 0; left: 6px; overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
.ipyagent-diff { margin: 6px 8px 6px calc(var(--jp-cell-prompt-width, 64px) + 14px); border: 1px solid var(--jp-border-color1);
  border-left: 3px solid var(--jp-brand-color1); border-radius: 3px; background: var(--jp-layout-color1); color: var(--jp-ui-font-color1);
  font-family: var(--jp-ui-font-family); font-size: 13px; }
.ipyagent-diff-head { display: flex; flex-wrap: wrap; gap: 6px; align-items: center; padding: 4px 8px; }
.ipyagent-diff-cut { color: var(--jp-ui-font-color2); }
.ipyagent-diff-title { flex: 1 1 160px; overflow-wrap: anywhere; }
.ipyagent-accept, .ipyagent-accept-all { border-color: var(--jp-brand-color1); }
.ipyagent-diff-text { margin: 0; padding: 4px 0; max-height: 320px; overflow: auto; font-family: var(--jp-code-font-family);
  font-size: var(--jp-code-font-size); line-height: 1.35; white-space: pre-wrap; overflow-wrap: anywhere; border-top: 1px solid var(--jp-border-color2); }
.ipyagent-diff-text > span { display: block; padding: 0 8px; min-height: 1.35em; }
.ipyagent-added { background: color-mix(in srgb, transparent 82%, #2b9440); }
.ipyagent-removed { background: color-mix(in srgb, transparent 84%, #e5393b); }
.ipyagent-side { display: flex; flex-direction: column; min-width: 260px; background: var(--jp-layout-color1); color: var(--jp-ui-font-color1);
  font-family: var(--jp-ui-font-family); font-size: 13px; overflow: auto; padding: 6px 8px; }
.ipyagent-side-head { display: flex; flex-wrap: wrap; gap: 4px 8px; align-items: baseline; padding-bottom: 4px; }
.ipyagent-side-name { margin: 0; font-size: inherit; font-weight: 600; overflow-wrap: anywhere; }
.ipyagent-side .ia-timeline .it-detail { max-height: none; }
.ipyagent-side-told { color: var(--jp-ui-font-color2); flex: 1 1 100%; }
.ipyagent-status { cursor: pointer; background: none; border: 0; color: inherit; font: inherit; padding: 0 6px; line-height: 24px; }
@media (max-width: 1000px) { .ipyagent-status-model:has(+ :not(:empty)) { display: none; } }
`;

  const ICON =
    '<svg xmlns="http://www.w3.org/2000/svg" width="16" viewBox="0 0 24 24"><path class="jp-icon3" fill="#616161" ' +
    'd="M4 4h16a2 2 0 0 1 2 2v10a2 2 0 0 1-2 2h-9l-5 4v-4H4a2 2 0 0 1-2-2V6a2 2 0 0 1 2-2zm4 5.500a1.500 1.500 0 1 0 0 3 ' +
    '1.500 1.500 0 0 0 0-3zm8 0a1.500 1.500 0 1 0 0 3 1.500 1.500 0 0 0 0-3z"/></svg>';
  const words = (status) =>
    [status.model, status.context, status.cost, status.busy ? "working" : ""].map(string).filter(Boolean).join(" · ");

  async function plugin() {
    const { INotebookTracker } = await use("@jupyterlab/notebook");
    const { ICommandPalette } = await use("@jupyterlab/apputils");
    const { ILabShell, ILayoutRestorer } = await use("@jupyterlab/application");
    const { IStatusBar } = await use("@jupyterlab/statusbar");
    const { Widget } = await use("@lumino/widgets");
    const { Signal } = await use("@lumino/signaling");
    const { LabIcon } = await use("@jupyterlab/ui-components");
    const optional = [ICommandPalette, IStatusBar, ILabShell, ILayoutRestorer].filter(Boolean);
    return {
      id: "ipyagent:plugin",
      description: "The agent in the notebook's kernel",
      autoStart: true,
      requires: [INotebookTracker],
      optional,
      activate(app, tracker, ...given) {
        const service = (token) => (token && optional.includes(token) ? given[optional.indexOf(token)] : null);
        document.head.append(element("style", "", STYLE));
        const links = new Map(); // by the panel's id
        const front = () => links.get(tracker.currentWidget?.id) ?? null;

        // ---- the panel at the side
        class Side extends Widget {
          onAfterShow() {
            draw();
          }
        }
        const side = new Side();
        side.id = "ipyagent-side";
        side.addClass("ipyagent-side");
        side.title.caption = "Agent Panel";
        side.title.icon = new LabIcon({ name: "ipyagent:agent", svgstr: ICON });
        const head = element("div", "ipyagent-side-head");
        const name = element("h2", "ipyagent-side-name");
        const stop = button("Stop", () => front()?.say({ kind: "stop" }), "ipyagent-button ipyagent-side-stop");
        const told = element("div", "ipyagent-side-told");
        const body = element("div", "ipyagent-side-body");
        head.append(name, stop, told);
        side.node.append(head, body);
        app.shell.add(side, "right", { rank: 900 });
        service(ILayoutRestorer)?.add(side, side.id);
        const draw = () => {
          const link = front();
          name.textContent = link ? string(link.panel.title.label) : "No notebook";
          stop.disabled = !link?.status.busy;
          stop.hidden = !link?.known;
          told.textContent = !link
            ? "Open a notebook to see its agent."
            : link.known
              ? words(link.status)
              : "This notebook's kernel has no agent: run %load_ext ipyagent in a cell.";
          if (link?.known && !link.mark && side.isVisible) link.say({ kind: "panel" });
          if (link?.mark && !link.host) link.host = element("div", "ipyagent-side-board");
          if (link?.host && link.host.dataset.ipyagentBoard !== `${link.mark}.context.side`) {
            link.host = element("div", "ipyagent-side-board"); // the board of another kernel, or of none any more
            if (link.mark) link.host.dataset.ipyagentBoard = `${link.mark}.context.side`;
          }
          const host = link?.mark ? link.host : null;
          if (body.firstChild !== host) body.replaceChildren(...(host ? [host] : []));
        };

        // ---- the status bar
        const item = new Widget({ node: button("", () => app.commands.execute("ipyagent:panel"), "ipyagent-status") });
        item.node.title = "The agent of this notebook: model, context in use, cost of the session";
        const model = element("span", "ipyagent-status-model"); // a narrow page has room for the rest only
        const rest = element("span");
        item.node.append(model, rest);
        const active = new Signal(item);
        service(IStatusBar)?.registerStatusItem("ipyagent:status", {
          item, align: "right", rank: 90, isActive: () => Boolean(front()?.known), activeStateChanged: active,
        });
        const show = () => {
          const status = front()?.known ? front().status : {};
          rest.textContent = words({ ...status, model: "" });
          model.textContent = [string(status.model), rest.textContent && " · "].filter(Boolean).join("");
          active.emit(undefined);
          app.commands.notifyCommandChanged();
          draw();
        };

        // ---- commands
        const cell = () => tracker.activeCell;
        const free = () => Boolean(cell()) && !kept(cell());
        const failed = () => free() && cell().model.type === "code" && cell().model.outputs.toJSON().some((output) => output.output_type === "error");
        const add = (id, label, caption, execute, enabled = free) => {
          app.commands.addCommand(`ipyagent:${id}`, {
            label, caption, execute: () => execute(front()),
            isEnabled: () => Boolean(front()?.known) && enabled(), isVisible: () => Boolean(front()?.known),
          });
          service(ICommandPalette)?.addItem({ command: `ipyagent:${id}`, category: "Agent" });
        };
        add("ask", "Ask Agent About the Selection", "A request below this cell, with what is selected", (link) => link.about(cell()));
        add("fix", "Fix with Agent", "Have the agent find out why this cell failed, and fix it", (link) => link.fix(cell()), failed);
        add("explain", "Explain Cell with Agent", "Have the agent explain this cell", (link) => link.explain(cell()), () => free() && cell().model.type === "code");
        add("stop", "Stop Agent", "Stop what the agent is doing", (link) => link.say({ kind: "stop" }), () => Boolean(front()?.status.busy));
        add("compact", "Compact the Agent's Context", "Make room in the context: %compact in a cell below", (link) => link.request(cell(), "%compact", true), () => Boolean(cell()));
        app.commands.addCommand("ipyagent:undo", {
          label: "Undo the Agent's Last Change",
          execute: () => front()?.undo(),
          isEnabled: () => Boolean(front()?.undoable),
          isVisible: () => Boolean(front()?.undoable),
        });
        service(ICommandPalette)?.addItem({ command: "ipyagent:undo", category: "Agent" });
        app.commands.addCommand("ipyagent:panel", {
          label: "Agent Panel",
          caption: "Context, memory, skills, sub-agents and sessions of the notebook in front",
          execute: () => app.shell.activateById(side.id),
        });
        service(ICommandPalette)?.addItem({ command: "ipyagent:panel", category: "Agent" });

        // ---- notebooks
        const wire = async (panel) => {
          await panel.context.ready;
          if (panel.isDisposed || links.has(panel.id)) return;
          let due = 0;
          const later = () => {
            due ||= setTimeout(() => {
              due = 0;
              if (!panel.isDisposed) link.decorate();
            }, 60);
          };
          const link = new Link(app, panel, (changed) => {
            later();
            if (changed === front()) show();
          });
          links.set(panel.id, link);
          panel.disposed.connect(() => links.delete(panel.id));
          panel.content.modelContentChanged.connect(later);
          panel.content.activeCellChanged.connect(() => {
            later();
            if (link.known) link.hello(); // of several pages the one that is worked in makes the agent's edits
          });
          panel.content.stateChanged.connect(later);
          new MutationObserver(later).observe(panel.content.node, { childList: true, subtree: true });
          panel.content.node.addEventListener("input", (event) => link.typed(event));
          panel.content.node.addEventListener("focusin", () => link.known && link.hello());
          link.decorate();
          show();
        };
        window.addEventListener("keydown", (event) => front()?.hush(event), true); // before Lab's own keys, which keep it
        tracker.forEach(wire);
        tracker.widgetAdded.connect((_, panel) => wire(panel));
        tracker.currentChanged.connect(show);
        tracker.activeCellChanged.connect(() => app.commands.notifyCommandChanged());
        show();
      },
    };
  }

  const container = {
    init: (given) => {
      scope = given;
    },
    get: async () => {
      const made = await plugin();
      return () => ({ __esModule: true, default: made });
    },
  };
  (window._JUPYTERLAB = window._JUPYTERLAB || {})["ipyagent"] = container;
})();
