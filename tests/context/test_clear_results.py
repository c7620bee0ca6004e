"""Old results of tools that can be used again leave the view, in one batch, when it pays."""

from __future__ import annotations

import itertools

import pytest
from situations import Talk, decide, said, situation

from ipyagent.context.clear_results import BY_COUNT, BY_TIME, LAYER
from ipyagent.context.reminders import standing, told_in, without_outdated, without_told
from ipyagent.journal.events import LayerDecision, ResultsCleared, ResultStored, UserMessage
from ipyagent.journal.view import ContextView

GONE = "[Previous: used python]"
LONG_AGO = "[Old tool result content cleared]"
EAGER = {"clear_policy": "every_turn"}


def rounds(count: int, **given: object) -> Talk:
    talk = Talk().user()
    for _ in range(count):
        talk.call(**given)
    return talk.answer().user()


def test_every_turn_keeps_the_three_newest() -> None:
    talk = rounds(6)
    cleared, decided = talk.consider(**EAGER)
    assert isinstance(cleared, ResultsCleared)
    assert (len(cleared.calls), cleared.text, cleared.layer) == (3, BY_COUNT, LAYER)
    assert isinstance(decided, LayerDecision)
    assert talk.results() == [GONE] * 3 + ["word " * 400] * 3
    assert talk.consider(**EAGER) == []


def test_the_saving_is_what_leaves_the_count() -> None:
    talk = rounds(8, words=2_000)
    before = talk.view.count()
    cleared = talk.consider(**EAGER)[0]
    after = talk.view.count()
    assert before.tokens - after.tokens == pytest.approx(cleared.saved * before.factor, rel=0.05)


def test_short_results_are_not_worth_a_word() -> None:
    assert rounds(6, words=20).consider(**EAGER) == []
    assert rounds(6, words=20).consider(**EAGER, clear_chars=99)[0].saved > 0


def test_only_tools_that_can_be_used_again_are_touched() -> None:
    talk = Talk().user()
    for tool in ("memory", "load_skill", "mcp__server__search", "python", "grep", "python", "python"):
        talk.call(tool=tool)
    talk.answer().user().consider(**EAGER, clear_keep=2)
    assert talk.results() == ["word " * 400] * 3 + [GONE, "[Previous: used grep]"] + ["word " * 400] * 2


def test_what_the_running_turn_has_fetched_back_stays_until_the_turn_is_over() -> None:
    talk = rounds(5)
    back = {"path": ".ipyagent/sessions/s/tool-results/left-1.txt"}
    talk.call(tool="read_file", given=back)
    for given in ({"code": "_agent['r2'].head()"}, *[{"code": "df.head()"}] * 6):
        talk.call(given=given)
    talk.consider(**EAGER)
    assert talk.results() == [GONE] * 5 + ["word " * 400] * 2 + [GONE] * 3 + ["word " * 400] * 3
    talk.answer().user().consider(**EAGER)
    assert talk.results()[5:7] == ["[Previous: used read_file]", GONE]


def test_an_error_among_the_last_three_stays() -> None:
    talk = Talk().user().call(error=True).call().call(error=True).call().answer().user()
    talk.consider(**EAGER, clear_keep=0)
    assert talk.results() == [GONE, GONE, "word " * 400, GONE]


def test_what_the_model_has_not_seen_is_never_cleared() -> None:
    talk = Talk().user().call().call(many=9)
    talk.consider(**EAGER, clear_keep=0)
    assert talk.results() == [GONE] + ["word " * 400] * 9


def test_what_the_user_and_the_model_said_stays() -> None:
    talk = rounds(6)
    words = [block for message in talk.view.messages for block in message["content"] if block["type"] != "tool_result"]
    talk.consider(**EAGER)
    after = [block for message in talk.view.messages for block in message["content"] if block["type"] != "tool_result"]
    assert after == words


def test_an_open_turn_with_thinking_is_left_alone() -> None:
    talk = Talk().user()
    for _ in range(8):
        talk.call(thinking=True)
    assert not talk.view.editable
    assert talk.consider(**EAGER) == []
    assert talk.consider(idle=7_200.0) == []
    talk.answer().user()
    assert talk.view.editable
    talk.consider(**EAGER)
    kinds = [block["type"] for message in talk.view.messages[2:] for block in message["content"]]
    assert "thinking" not in kinds, "thinking behind a changed message is bound to what is gone"
    assert talk.results()[:5] == [GONE] * 5


def test_a_long_silence_clears_all_but_the_newest_five() -> None:
    talk = rounds(9)
    talk.consider(idle=3_599.0)
    assert LONG_AGO not in talk.results()
    talk = rounds(9)
    cleared, _decided = talk.consider(idle=3_600.0)
    assert cleared.text == BY_TIME
    assert talk.results() == [LONG_AGO] * 4 + ["word " * 400] * 5


def test_a_long_silence_keeps_one_result_at_least() -> None:
    talk = rounds(4)
    talk.consider(idle=7_200.0, clear_idle_keep=1)
    assert talk.results() == [LONG_AGO] * 3 + ["word " * 400]


def test_after_the_cache_has_gone_cold_clearing_costs_nothing() -> None:
    talk = rounds(6)
    assert not isinstance(talk.consider(turns=3, idle=10.0)[0], ResultsCleared)
    cleared, decided = talk.consider(turns=3, idle=301.0)
    assert isinstance(cleared, ResultsCleared)
    assert "the cache is cold" in decided.words


def test_what_does_not_pay_is_kept_and_said() -> None:
    talk = Talk().user().call().call().call().call().answer(said("A long answer. " * 3_000)).user()
    (decided,) = talk.consider(turns=3)
    assert isinstance(decided, LayerDecision)
    assert (decided.layer, decided.saved, decided.dollars) == (LAYER, 0, 0.0)
    assert decided.words.startswith("kept 1 old tool result: clearing now would cost $")
    assert talk.results() == ["word " * 400] * 4


def test_a_batch_goes_when_it_pays_and_the_prefix_is_left_alone_afterwards() -> None:
    talk, batches = Talk().user(), []
    for number in range(60):
        talk.call(words=1_000)
        talk.view.behind()
        made = talk.consider(turns=min(50, max(3, number)))
        if made and isinstance(made[0], ResultsCleared):
            batches.append((number, len(made[0].calls)))
            assert not [e for e in talk.consider(turns=number) if isinstance(e, ResultsCleared)], "twice in a row"
    cleared = sum(size for _, size in batches)
    assert 3 <= len(batches) <= 12, batches
    assert cleared >= 40, batches
    assert max(size for _, size in batches) >= 5


def test_the_best_cut_leaves_an_old_result_far_back_alone() -> None:
    talk = Talk().user().call(words=150).answer(said("A long answer. " * 8_000)).user()
    for _ in range(16):
        talk.call(words=3_000)
    talk.consider(turns=20)
    assert talk.results()[0] == "word " * 150
    assert talk.results()[1:14] == [GONE] * 13


def test_near_the_threshold_old_results_go_down_to_70_percent_of_it_or_not_at_all() -> None:
    talk = rounds(30, words=600)
    window = round(talk.view.count().tokens * 1.3)
    before = situation(talk.view, window=window).state
    assert before.above_warning
    _cleared, decided = talk.consider(window=window)
    assert "the auto-compact threshold is near" in decided.words
    assert talk.view.count().tokens <= 0.7 * before.auto_mark
    assert decided.dollars > 0
    talk = rounds(6, words=600).user("A long question. " * 3_000)
    window = round(talk.view.count().tokens * 1.3)
    (kept,) = talk.consider(window=window)
    assert kept.words.startswith("kept 3 old tool results: the prompt would be near")
    assert talk.view.results[0].cleared is False


def test_near_the_threshold_no_clearing_costs_more_than_it_saves_and_none_follows_another() -> None:
    """A session in a window of 40,000 tokens, results of all sizes: what is cleared is paid back before it is full."""
    talk, at = Talk().user(), []
    for number in range(120):
        talk.call(words=(40, 300, 1_500, 3_000)[number % 4])
        made = talk.consider(window=40_000, turns=min(50, max(3, number)))
        if made and isinstance(made[0], ResultsCleared):
            at.append(number)
            assert made[1].dollars > 0, made[1].words
    assert len(at) >= 5
    assert all(later - earlier >= 3 for earlier, later in itertools.pairwise(at)), at


def test_a_stored_result_can_still_be_found() -> None:
    talk = Talk().user()
    for _ in range(5):
        talk.call()
    talk.add(ResultStored(call="toolu_0", path="tool-results/toolu_0.txt", chars=90_000, handle="_agent['r1']"))
    talk.answer().user().consider(**EAGER, place="~/sessions/a")
    assert talk.results()[0] == (
        f"{GONE} The whole result is kept: ~/sessions/a/tool-results/toolu_0.txt, in python _agent['r1']"
    )
    assert talk.results()[1] == GONE


def test_the_anchor_moves_before_the_cut() -> None:
    talk = rounds(12)
    talk.consider(**EAGER)
    assert talk.view.held(99, 300.0) == 1, "nothing behind the first cleared result is in the cache"
    _, _, messages = talk.view.wire()
    marked = [at for at, message in enumerate(messages) if "cache_control" in str(message)]
    assert marked == [0, len(messages) - 1]


def test_where_the_server_clears_we_do_not() -> None:
    talk = rounds(8)
    assert decide(talk.view, **EAGER, engine="server", server_edits=True) == ()
    near = {"engine": "auto", "server_edits": True, "bound_thinking": True}
    assert decide(talk.view, **EAGER, **near, server_clear_trigger=talk.view.count().tokens) == ()
    for given in (
        {"engine": "server", "server_edits": False},
        {"engine": "client", "server_edits": True},
        {"engine": "server", "server_edits": True, "layer_server_edits": False},
        {"engine": "auto", "server_edits": True, "bound_thinking": False},
        {**near, "server_clear_trigger": 2 * talk.view.count().tokens},
    ):
        assert decide(talk.view, **EAGER, **given), given


def test_the_same_events_give_the_same_bytes() -> None:
    talk = rounds(8, thinking=True)
    talk.consider(**EAGER)
    talk.call().answer().user().consider(**EAGER)
    again = ContextView.of(talk.events)
    assert again.wire() == talk.view.wire()
    assert again.count() == talk.view.count()


def told(text: str) -> UserMessage:
    return UserMessage(text="next", blocks=(*said(f"<context>\n{text}\n</context>"), *said("next")))


NOTE = "(lines that later ones replace were left out)"


@pytest.mark.parametrize(
    ("old", "left"),
    [
        ("Variables now:\nx  1", NOTE),
        ("Date: today.\nVariables now:\nx  1\ny  2\nRun by the user since the last request:\n```\nx = 1\n```",
         f"Date: today.\n{NOTE}\nRun by the user since the last request:\n```\nx = 1\n```"),
        ("Variables now:\nx  1\nfunctions: f(a)", f"Variables now: {NOTE}\nfunctions: f(a)"),
        ("Variables now:\nx  1\nz  3", f"Variables now: {NOTE}\nz  3"),
        (f"Variables now: {NOTE}\nx  1", NOTE),
        (f"Variables now: {NOTE}\nx  1\nz  3", f"Variables now: {NOTE}\nz  3"),
        (f"{NOTE}\nchanged: x  1", NOTE),
        ("Date: today.\nchanged: x  1", f"Date: today.\n{NOTE}"),
    ],
)  # fmt: skip
def test_no_heading_stays_under_which_nothing_stands_and_what_was_left_out_is_said_once(old: str, left: str) -> None:
    later = "<context>\nchanged: x  5\nnew: y  6\n</context>"
    made = without_outdated([(3, f"<context>\n{old}\n</context>"), (7, later)])
    assert made == [(3, f"<context>\n{left}\n</context>")]
    put_back = without_told(said(f"<context>\n{old}\n</context>"), [later])
    assert put_back == ([] if left == NOTE else list(said(f"<context>\n{left}\n</context>")))


def test_clearing_takes_what_later_context_blocks_tell_anew_out_of_the_older_ones_behind_it() -> None:
    talk = Talk()
    talk.add(told("Date: 2026-01-01.\nVariables now:\nx  1\ndf  DataFrame 2 x 1: a i64"))
    talk.call()
    talk.answer().add(told("new: y  2\nchanged: x  5"))
    talk.call().call()
    talk.answer().add(told("changed: x  6\ngone: y\nRun by the user since the last request:\n```\nx  = 6\n```"))
    talk.call().call().call()
    before = talk.view.count()
    cleared = talk.consider(**EAGER)[0]
    blocks = [block for message in talk.view.messages for block in message["content"]]
    contexts = [block["text"] for block in blocks if "<context>" in block.get("text", "")]
    assert contexts == [
        "<context>\nDate: 2026-01-01.\nVariables now:\nx  1\ndf  DataFrame 2 x 1: a i64\n</context>",  # stays cached
        "<context>\n(lines that later ones replace were left out)\n</context>",
        "<context>\nchanged: x  6\ngone: y\nRun by the user since the last request:\n```\nx  = 6\n```\n</context>",
    ]
    assert before.tokens - talk.view.count().tokens == pytest.approx(cleared.saved * before.factor, rel=0.05)
    assert ContextView.of(talk.events).wire() == talk.view.wire()
    assert told_in(standing(talk.view.messages)) == {"x", "df"}
    assert talk.consider(**EAGER) == []
