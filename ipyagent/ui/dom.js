// Elements for every panel: words are set as text, never as markup.
function element(tag, kind, text) {
  const node = document.createElement(tag);
  if (kind) node.className = kind;
  if (text !== undefined) node.textContent = text;
  return node;
}

// A press that a script of the page made does nothing.
function button(text, act, kind = "") {
  const node = element("button", kind, text);
  node.type = "button";
  node.addEventListener("click", (event) => event.isTrusted && act(event));
  return node;
}

function select(label, choices, kind = "ia-input") {
  const node = element("select", kind);
  node.setAttribute("aria-label", label);
  for (const [value, words] of choices) {
    const option = element("option", "", words);
    option.value = value;
    node.append(option);
  }
  return node;
}

// Keys typed here are no commands of the notebook. Its shortcuts for whatever has the focus (`… :focus`) are matched
// with that element before its parents are looked at, so that it must say so itself.
function ownKeys(root) {
  root.dataset.lmSuppressShortcuts = "true";
  root.addEventListener("focusin", (event) => (event.target.dataset.lmSuppressShortcuts = "true"));
}

export default { element, button, select, ownKeys };
