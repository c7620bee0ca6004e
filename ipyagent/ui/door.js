// Brings to life the hidden buttons that carry this kernel's mark, wherever they stand in the page.
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
    if (!button || button.disabled) return;
    button.disabled = true;
    model.send({ button: button.dataset.ipyagentDoor });
  };
  document.addEventListener("click", press, true);
  const leave = () => {
    document.removeEventListener("click", press, true);
    style.remove();
  };
  model.on("destroy", leave);
  return leave;
}

export default { initialize };
