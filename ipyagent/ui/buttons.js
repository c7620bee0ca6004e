// Brings to life the hidden buttons that carry this kernel's mark, wherever they stand in the page, and puts
// cells that the kernel offers into the notebook, where the page has one that can take them.
const page = crypto.randomUUID ? crypto.randomUUID() : String(Math.random());

// The notebook's shared model: JupyterLab and Notebook 7 (undocumented; everything is looked at before it is used).
function notebookOf(model) {
  const shared = model.widget_manager?.context?.model?.sharedModel;
  return shared && typeof shared.insertCell === "function" && typeof shared.transact === "function" && Array.isArray(shared.cells)
    ? shared
    : null;
}

function placeBelow(shared, below) {
  const at = shared.cells.findIndex((cell) => (cell.id ?? cell.getId?.()) === below);
  return at < 0 ? null : at + 1;
}

function hear(model, message) {
  if (message?.offer) {
    const shared = notebookOf(model);
    const able = shared && placeBelow(shared, message.below) !== null;
    model.send({ [able ? "claim" : "unable"]: message.offer, page });
  } else if (message?.insert && message.page === page) {
    const shared = notebookOf(model);
    const at = placeBelow(shared, message.below) ?? shared.cells.length; // the cell went meanwhile
    shared.undoManager?.stopCapturing(); // one step for undo, with nothing of the user's in it
    shared.transact(() => message.insert.forEach((cell, i) => shared.insertCell(at + i, cell)));
    shared.undoManager?.stopCapturing();
  }
}

let presses = 0;

function initialize({ model }) {
  const mark = model.get("mark");
  const own = `[data-ipyagent-door^="${CSS.escape(mark)}."]`;
  const style = document.createElement("style");
  style.textContent =
    `${own} { display: inline-block !important; font: inherit; font-size: 0.85em; line-height: 1.3; margin: 0 0 0 6px; padding: 0 8px;` +
    " border: 1px solid var(--jp-border-color1, #bdbdbd); border-radius: 9px !important; background: var(--jp-layout-color1, Canvas);" +
    " color: var(--jp-content-font-color1, inherit); cursor: pointer; }" +
    `${own}::after { content: attr(data-sign); } ${own}:hover { background: var(--jp-layout-color2, rgba(128, 128, 128, 0.1)); }` +
    `${own}:focus-visible { outline: 2px solid var(--jp-brand-color1, #1976d2); outline-offset: 1px; }` +
    `${own}:disabled { opacity: 0.5; cursor: default; } ${own} + small { display: none; }`; // the command, which says the same
  document.head.append(style);
  const press = (event) => {
    const button = event.target.closest?.(own);
    if (!event.isTrusted || !button || button.disabled) return;
    button.disabled = true;
    const again = button.hasAttribute("data-again");
    model.send({ button: button.dataset.ipyagentDoor, ...(again ? { press: `${page}.${++presses}` } : {}) });
    if (again) setTimeout(() => (button.disabled = false), 1500); // not twice by a double click
    if (again && event.detail === 0) { // by a key
      held = button.dataset.ipyagentDoor;
      watcher.observe(document.body, { childList: true, subtree: true });
    }
  };
  // What a press changes is written anew, its button too: the focus goes to the new one, until it goes elsewhere.
  let held = "";
  const watcher = new MutationObserver(() => {
    if (document.activeElement !== document.body) return;
    document.querySelector(`[data-ipyagent-door="${CSS.escape(held)}"]:not(:disabled)`)?.focus({ preventScroll: true });
  });
  const release = (event) => {
    if (event.type === "focusin" && event.target.dataset?.ipyagentDoor === held) return;
    held = "";
    watcher.disconnect();
  };
  const listen = (message) => hear(model, message);
  model.on("msg:custom", listen);
  model.send({ ready: page });
  document.addEventListener("click", press, true);
  document.addEventListener("focusin", release);
  document.addEventListener("pointerdown", release);
  const leave = () => {
    document.removeEventListener("click", press, true);
    document.removeEventListener("focusin", release);
    document.removeEventListener("pointerdown", release);
    watcher.disconnect();
    model.off("msg:custom", listen);
    style.remove();
  };
  model.on("destroy", leave);
  const kernel = model.widget_manager?.kernel; // without it nobody hears a click any more
  kernel?.disposed?.connect?.(leave);
  kernel?.statusChanged?.connect?.((_, status) => status.endsWith("restarting") && leave());
  return leave;
}

export default { initialize };
