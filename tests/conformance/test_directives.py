"""The practice model follows the session's own directives: a summary in nine sections, and notes by edits."""

from __future__ import annotations

import re
from importlib.resources import files
from typing import Any

from practice_api import Body, assistant, result, said, user

from ipyagent.practice.model import answer
from ipyagent.practice.model.conversation import read
from ipyagent.practice.model.writing import TITLES
from ipyagent.practice.server.tokens import count_text

PROMPT = files("ipyagent.context").joinpath("summarize_prompt.md").read_text(encoding="utf-8").strip()
NOTES = files("ipyagent.context").joinpath("notes_prompt.md").read_text(encoding="utf-8").strip()
TEMPLATE = files("ipyagent.context").joinpath("notes_template.md").read_text(encoding="utf-8").strip()
PATH = ".ipyagent/sessions/s1/notes.md"


def run(id: str, code: str) -> Body:
    return {"type": "tool_use", "id": id, "name": "python", "input": {"code": code}}


def session(turns: int) -> list[Body]:
    messages = []
    for n in range(turns):
        table = "\n".join(f"r{k}  {k * 1.37 + n:.3f}" for k in range(30))
        messages += [
            user(f"Average of c{n} by region; depot {n} has the code FX-{n:03d}{n * 7 % 97} and closes at 5 pm"),
            assistant(run(f"a{n}", f"m{n} = df.groupby('region')['c{n}'].mean(")),
            user(result(f"a{n}", "SyntaxError: '(' was never closed", is_error=True)),
            assistant(run(f"b{n}", f"m{n} = df.groupby('region')['c{n}'].mean()\nm{n}.to_csv('out/m{n}.csv')")),
            user(result(f"b{n}", table)),
            assistant(said(f"The mean of c{n} is highest in r29: {29 * 1.37 + n:.2f}.")),
        ]
    return messages


def summary(messages: list[Body], directive: str = PROMPT) -> str:
    reply = answer({"messages": [*messages, user(said(directive))]})
    assert reply.stop_reason == "end_turn"
    (block,) = reply.content
    found = re.fullmatch(r"<analysis>\n.+\n</analysis>\n<summary>\n(.*)\n</summary>", block["text"], re.S)
    assert found
    return found[1]


def parts(text: str) -> dict[str, str]:
    found = re.findall(r"^(\d)\. ([^\n]+):\n(.*?)(?=\n\n\d\. |\Z)", text, re.M | re.S)
    assert [title for _, title, _ in found] == list(TITLES)
    assert [number for number, _, _ in found] == [str(n) for n in range(1, 10)]
    return {title: body for _, title, body in found}


def test_a_summary_has_nine_sections_filled_from_the_conversation_or_the_part_asked_for() -> None:
    # a summary has nine sections filled from the conversation
    found = parts(summary(session(5)))
    for n in range(5):
        assert f"FX-{n:03d}{n * 7 % 97}" in found["Every message of the user"]
        assert f"{29 * 1.37 + n:.2f}" in found["Problems solved"]
    assert "`m4`" in found["Files, variables and code"]
    assert "out/m4.csv" in found["Files, variables and code"]
    assert "SyntaxError" in found["Errors and fixes"]
    assert "Average of c4 by region" in found["Next step"]
    assert summary(session(5)) == summary(session(5))
    # an unfinished turn is the work that goes on
    messages = session(3)[:-1]
    found = parts(summary(messages))
    assert "newest request" in found["Pending tasks"]
    assert "Average of c2 by region" in found["Next step"]
    assert "Go on with it" in found["Next step"]
    assert "40.7" in found["Current work"] + found["Problems solved"] or "r0" in found["Current work"]
    # a summary of a part tells of that part
    messages = session(6)
    begin, end = messages[6]["content"][:60], messages[12]["content"][:60]
    asked = f"{PROMPT}\n\nSummarise only this part. The part begins with: “{begin}”. It ends with: “{end}”"
    text = summary(messages, asked)
    assert "FX-0017" in text
    assert "FX-0000" not in text
    assert "FX-00321" not in text


def test_a_summary_is_shorter_than_what_it_stands_for_and_at_most_about_2000_tokens() -> None:
    for turns, kept in ((1, 1.0), (3, 1.0), (12, 1.0), (60, 0.7)):
        messages = session(turns)
        text = summary(messages)
        size = sum(count_text(str(message["content"])) for message in messages)
        assert count_text(text) < min(size, 2_100)
        codes = [f"FX-{n:03d}{n * 7 % 97}" for n in range(turns)]
        assert sum(code in text for code in codes) >= kept * turns


def compacted(text: str, *more: str) -> Body:
    lead = "The conversation before this point was taken out of the context window. This summary stands in its place:\n"
    return user(said(f"{lead}<summary>\n{text}\n</summary>"), *map(said, more))


def test_a_second_summary_takes_over_what_the_first_says() -> None:
    first = summary(session(4))
    more = [compacted(first, "The user's newest request until now, word for word; what came of it is in the summary:")]
    later = session(6)[-6:]
    more[0]["content"] += [said("Average of c3"), said(later[0]["content"])]
    second = parts(summary([*more, *later[1:]]))
    for n in (0, 1, 2, 3, 5):
        assert f"FX-{n:03d}{n * 7 % 97}" in second["Every message of the user"]
    assert "The conversation before this point" not in second["Every message of the user"]
    assert "`m0`" in second["Files, variables and code"]


def test_after_a_compaction_the_newest_request_is_what_is_answered() -> None:
    again = "The user's newest request, word for word:"
    go_on = "The context window was nearly full. Go on with this request from where the summary says the work stands."
    message = compacted("1. x", again, "average x by g", go_on, '<file path="t.csv">\ng,x\n</file>')
    assert read({"messages": [message]}).turn.asked == "average x by g"
    noted = "The conversation before this point left the context window.\n\n<notes>\n# A\nb\n</notes>"
    told = "<request>\naverage x by g\n</request>\nThis is the user's newest request, being worked on."
    assert read({"messages": [user(said(noted), said(told))]}).turn.asked == "average x by g"
    block = {"type": "compaction", "content": "9. Next step:\n- The last request was: “average x by g”"}
    swept = user("(the server has summarised what was here)")
    for messages in ([assistant(block)], [swept, assistant(block)], [user(block)]):
        assert read({"messages": messages}).turn.asked == "average x by g"
    first = user({**block, "signature": "s"}, said(again), said("count the rows"), said(go_on))
    assert read({"messages": [first]}).turn.asked == "count the rows"


def notes_directive(notes: str) -> str:
    values = {"path": PATH, "notes": notes.strip(), "section_tokens": "2,000", "tokens": "12,000", "long": ""}
    text = re.sub(r"\{\{(\w+)\}\}", lambda found: values[found[1]], NOTES)
    return f'<update-notes file="{PATH}">\n{text.strip()}\n</update-notes>'


def edited(notes: str, messages: list[Body]) -> str:
    """The notes after the edits of the practice model, each applied as `edit_file` does."""
    body: dict[str, Any] = {"messages": [*messages, user(said(notes_directive(notes)))]}
    reply = answer(body)
    assert reply.stop_reason == "tool_use"
    for call in reply.content:
        assert call["name"] == "edit_file"
        assert call["input"]["path"] == PATH
        assert notes.count(call["input"]["old"]) == 1
        notes = notes.replace(call["input"]["old"], call["input"]["new"])
    results = [result(call["id"]) for call in reply.content]
    done = answer({"messages": [*body["messages"], assistant(*reply.content), user(*results)]})
    assert done.stop_reason == "end_turn"
    return notes


def test_notes_are_written_under_their_headings_and_kept_up_to_date() -> None:
    frame = re.findall(r"^(?:# .*|_.*_)$", TEMPLATE, re.M)
    assert len(frame) == 20
    first = edited(TEMPLATE, session(2))
    second = edited(first, session(4))
    for notes in (first, second):
        assert re.findall(r"^(?:# .*|_.*_)$", notes, re.M) == frame
    for fact in ("FX-0000", "FX-0017", "`m1`", "out/m1.csv", "SyntaxError", f"{29 * 1.37 + 1:.2f}"):
        assert fact in first
        assert fact in second
    assert "FX-00321" in second
    assert second.count("FX-0000") == first.count("FX-0000")


def test_without_anything_new_nothing_is_edited() -> None:
    notes = edited(TEMPLATE, session(2))
    reply = answer({"messages": [*session(2), user(said(notes_directive(notes)))]})
    assert [block["type"] for block in reply.content] == ["text"]


def test_an_edit_of_notes_quotes_only_where_it_begins_and_what_goes() -> None:
    notes, quoted, written, whole = TEMPLATE, 0, 0, 0
    for turns in range(4, 60, 4):
        reply = answer({"messages": [*session(turns), user(said(notes_directive(notes)))]})
        notes = edited(notes, session(turns))
        quoted += sum(count_text(call["input"]["old"]) for call in reply.content)
        written += sum(count_text(call["input"]["new"]) for call in reply.content)
        whole += count_text(notes)
        assert count_text(notes) < 12_000
    assert quoted < 0.8 * written
    assert quoted + written < 0.8 * whole, "writing all of it anew each time would quote and write twice the whole"


def test_in_a_full_section_stays_what_is_said_nowhere_else() -> None:
    def asked(turns: int) -> list[Body]:
        made = []
        for n in range(turns):
            code = f" The permit is ZX{n * 31 % 97:02d}-{n:03d}." if n % 7 == 0 else ""
            made += [user(f"Look at table_{n % 5}.csv once more, please, with column_{n % 3} in view.{code}")]
            made += [assistant(said(f"Seen, as before, number {n % 4}."))]
        return made

    notes = TEMPLATE
    for turns in range(10, 200, 10):
        notes = edited(notes, asked(turns))
    section = notes.split("# Task Specification")[1].split("\n# ")[0]
    permits = [f"ZX{n * 31 % 97:02d}-{n:03d}" for n in range(0, 190, 7)]
    assert [permit for permit in permits if permit not in section] == []
    assert count_text(section) < 2_000
