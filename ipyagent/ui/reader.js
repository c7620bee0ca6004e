// What the board's parts share: a list beside what is open, and a transcript that is read. Joined after `dom`.
const { element, button } = dom;

function twoColumns(own, label) {
  const body = element("div", "ib-body");
  const detail = element("div", "ia-box ib-detail");
  detail.tabIndex = -1;
  detail.setAttribute("role", "region");
  detail.setAttribute("aria-label", label);
  const status = element("div", "ia-status");
  status.setAttribute("role", "status");
  const say = (words, bad) => status.replaceChildren(element("span", bad ? "ia-wrong" : "", words));
  return { body, detail, status, say };
}

// A transcript, a turn at a time. `ask(turn, done)`.
function reader(detail, head, ask) {
  const tools = element("div", "ia-tools");
  const text = element("div", "ib-text");
  const where = element("span", "ia-dim ia-small");
  where.setAttribute("role", "status");
  let turn = 0;
  let turns = 0;
  const go = (to) =>
    ask(to, (look) => {
      [turn, turns] = [look.turn, look.turns];
      where.textContent = `turn ${turn.toLocaleString("en")} of ${turns.toLocaleString("en")}, read only`;
      back.disabled = turn <= 1;
      on.disabled = turn >= turns;
      text.innerHTML = look.html;
    });
  const back = button("Earlier turn", () => go(turn - 1), "ia-low");
  const on = button("Later turn", () => go(turn + 1), "ia-low");
  back.disabled = on.disabled = true;
  tools.append(back, on, where);
  detail.replaceChildren(...head, tools, text);
  go(0);
  return { again: () => turn && turn === turns && go(0) };
}

export default { twoColumns, reader };
