"""Large results are kept in files, previews go to the model, the same bytes ever after."""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from loop.loop_rig import KEY, Person, Rig, result_text
from rooms import as_json, results, room

import ipyagent
from ipyagent.assembly.settings import limit_of
from ipyagent.config import IPyAgent
from ipyagent.context.store_results import FullResult, ends, excerpt, for_person, kind_of_text, largest_first, store
from ipyagent.journal.events import Event, LayerFailed, ResultStored, ToolReturned
from ipyagent.journal.journal import FOLDER, file_stem, lines_of
from ipyagent.journal.tokens import is_over, prose_chars
from ipyagent.journal.view import ContextView
from ipyagent.practice.replies import calls, text, tool
from ipyagent.practice.server import PracticeServer
from ipyagent.ui.static import static_bundle

BIG = "print('\\n'.join(f'line {n} of the log' for n in range(20_000)))"


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Rig]]:
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    monkeypatch.setenv("IPYAGENT_HOME", str(tmp_path / "home"))
    made: list[Rig] = []
    with PracticeServer() as server:

        def build(**options: Any) -> Rig:
            given = {"layer_notes": False, "extraction": False, **options}  # their fork would be the newest request
            made.append(Rig(given.pop("folder", tmp_path / "project"), server, **given))
            return made[-1]

        yield build
        for rig in made:
            rig.close()
        assert [exchange.error for exchange in server.refused] == []


def run(rig: Rig, code: str, *more: str, person: Person | None = None, **options: Any) -> list[str]:
    """Run code through the model's `python`, one call a request; the results as the model got them."""
    rig.server.script(*(tool("python", {"code": one}) for one in (code, *more)), text("ok"))
    result = rig.turn("do it", person, **options)
    assert result.status == "finished", result.message
    return [result_text(block) for block in rig.results()]


def failures(rig: Rig) -> list[LayerFailed]:
    return [event for event in rig.events() if isinstance(event, LayerFailed) and event.layer == "store_results"]


def folder(rig: Rig) -> Path:
    return rig.agent.session.journal.folder


def test_a_result_over_the_limit_is_kept_whole_and_its_preview_goes_to_the_model(make: Callable[..., Rig]) -> None:
    rig = make()
    [shown] = run(rig, BIG)
    [event] = rig.of(ResultStored)
    whole = (folder(rig) / event.path).read_text(encoding="utf-8")
    assert whole == "\n".join(f"line {n} of the log" for n in range(20_000))
    assert (event.chars, event.lines, event.handle) == (len(whole), 20_000, "")
    assert Path(event.path).suffix == ".txt"
    head, *body, end = shown.splitlines()
    place = f".ipyagent/sessions/{folder(rig).name}/{event.path}"
    assert head == f'<persisted-output path="{place}" size="{len(whole):,} characters" lines="20,000">'
    assert end == "</persisted-output>"
    assert (body[0], body[-2]) == ("line 0 of the log", "line 19999 of the log")
    assert 1_000 < len(shown) < 2_600
    read = for_person(shown)
    assert "persisted-output" not in read
    assert "read_file" not in read
    assert read.splitlines()[:-1] == body[:-1]
    assert read.splitlines()[-1] == f"… a preview: the whole ({len(whole):,} characters, 20,000 lines) is in {place}"
    assert str(rig.folder) not in json.dumps(rig.server.messages[-1].body)
    returned = rig.of(ToolReturned)[0]
    assert returned.blocks == ({"type": "text", "text": shown},)
    order = [type(each) for each in rig.events() if isinstance(each, (ResultStored, ToolReturned))]
    assert order == [ResultStored, ToolReturned]


def test_the_person_sees_what_was_printed_and_not_the_models_preview(make: Callable[..., Rig]) -> None:
    rig = make(store_chars=10_000)
    [shown] = run(rig, "for n in range(4_000): print('row', n, 'of the list')")
    assert "row 2000 " not in shown
    [event] = rig.of(ResultStored)
    place = f".ipyagent/sessions/{folder(rig).name}/{event.path}"
    rows = (folder(rig) / event.path).read_text("utf-8").rstrip().split("\n")
    bundle = static_bundle(rig.events(), None)
    for form, least in (("text/html", 900), ("text/markdown", 80), ("text/plain", 80)):
        text = bundle[form]
        seen = [at for at, row in enumerate(rows) if row in text]
        assert least < len(seen) < least * 1.5
        assert (seen[0], seen[-1]) == (0, 3_999)
        assert "lines between" not in text
        cut = next(line for line in text.splitlines() if "characters not shown" in line)
        assert cut.strip().endswith(f"characters not shown: the whole is in {place} …")
        gone = int(cut.split()[1].replace(",", ""))
        assert gone == len("\n".join(rows)) - {"text/html": 20_000}.get(form, 2_000)
    (folder(rig) / event.path).unlink()
    assert static_bundle(rig.events(), None) == bundle  # a reopened turn does not read the file


def test_no_cut_hides_from_the_person_less_than_it_says(make: Callable[..., Rig]) -> None:
    rig = make(store_chars=5_000)
    run(rig, "for n in range(1_640): print('the row', n)")
    [event] = rig.of(ResultStored)
    whole = (folder(rig) / event.path).read_text("utf-8").rstrip()
    assert 20_000 < len(whole) < 20_500
    html = static_bundle(rig.events(), None)["text/html"]
    assert all(row in html for row in whole.split("\n"))
    assert "not shown" not in html
    assert ends("x" * 2_499, 2_000) == ("x" * 2_499, "", 0)
    assert ends("x" * 2_500, 2_000) == ("x" * 1_500, "x" * 500, 500)


def test_where_all_results_of_a_message_are_stored_the_cut_names_the_file() -> None:
    text = "\n".join(f"row {n}" for n in range(2_000))
    events: list[Event] = [ToolReturned(call="a", name="python", blocks=({"type": "text", "text": text},))]
    assert "the session's transcript has them" in static_bundle(events, None)["text/markdown"]
    preview = '<persisted-output path="s/tool-results/a.txt" size="1 characters">\nrow 0\nOnly.\n</persisted-output>'
    blocks = ({"type": "text", "text": preview},)
    events.append(ResultStored(call="a", path="tool-results/a.txt", chars=len(text), blocks=blocks))
    assert "not shown: the whole is in s/tool-results/a.txt …" in static_bundle(events, None)["text/markdown"]


def test_a_result_at_the_limit_is_not_stored_and_one_over_it_is(make: Callable[..., Rig]) -> None:
    rig = make(store_chars=1_000)
    most = max(n for n in range(1_000) if prose_chars("7 " * n + "7") <= 1_000)
    assert most < 400  # digits are short tokens: 800 characters of them are as many as 1,000 of prose
    at, over = run(rig, f"print('7 ' * {most} + '7')", f"print('7 ' * {most + 1} + '7')")
    assert at == "7 " * most + "7"
    assert over.startswith("<persisted-output")
    assert len(rig.of(ResultStored)) == 1


def test_sizes_are_by_tokens_and_told_as_characters_of_prose(make: Callable[..., Rig]) -> None:
    prose = "The harbour was quiet that morning, and nobody had expected the ferry before ten. "
    numbers = "0.482913 0.120774 0.993015 0.557201 0.038846 0.716402 0.264190 0.805533\n"
    assert prose_chars(prose * 250) == pytest.approx(len(prose * 250), rel=0.2)
    assert not is_over(prose * 240, 25_000)
    assert is_over((numbers * 300)[:19_000], 25_000)
    assert is_over("x" * 100_001, 25_000)
    assert not is_over("", 0)
    rig = make()
    rows = f"print(''.join(f'{{n:06}}' + {numbers!r}[6:] for n in range(263)))"
    whole, over = run(rig, f"print({prose!r} * 240)", rows)
    assert whole == (prose * 240).rstrip() or whole == prose * 240
    assert over.startswith("<persisted-output")
    assert f'size="{len(numbers) * 263 - 1:,} characters"' in over
    assert prose_chars(over) < 2_700  # the preview is as large as one of prose
    [event] = rig.of(ResultStored)
    rig.server.script(tool("read_file", {"path": event.path}), text("ok"))
    rig.turn("more")
    page = result_text(rig.results()[-1])
    assert 20_000 < prose_chars(page) < 25_500
    assert "continue with offset=" in page


def test_a_tool_may_have_its_own_limit(make: Callable[..., Rig]) -> None:
    def short(n: int) -> str:
        """Give letters."""
        return "y " * n

    most = max(n for n in range(300) if prose_chars("y " * n) <= 300)
    later = ipyagent.tool(name="later", permission="none", store_chars=300, deferred="letters")(short)
    rig = make(tools=[ipyagent.tool(permission="none", store_chars=300)(short), later])
    through = [("call_tool", {"name": "later", "arguments": {"n": n}}) for n in (most, most + 1)]
    rig.server.script(calls([("short", {"n": most}), ("short", {"n": most + 1}), *through]), text("ok"))
    rig.turn()
    results = [result_text(block) for block in rig.results()]
    assert results[0] == results[2] == "y " * most
    assert [one.startswith("<persisted-output") for one in results] == [False, True] * 2


def test_of_many_results_together_the_largest_are_stored_first(make: Callable[..., Rig]) -> None:
    def letters(n: int) -> str:
        """Give letters."""
        return "z" * n

    rig = make(tools=[ipyagent.tool(permission="none", parallel=True)(letters)], store_message_chars=22_000)
    sizes = [9_000, 12_000, 3_000, 11_000, 9_500]
    rig.server.script(calls([("letters", {"n": n}) for n in sizes]), text("ok"), text("still"))
    rig.turn()
    got = [result_text(block) for block in rig.results()]
    kept = [len(one) if one.startswith("z") else 0 for one in got]
    assert kept == [9_000, 0, 3_000, 0, 9_500]
    assert sum(map(prose_chars, got)) <= 22_000
    assert [event.chars for event in rig.of(ResultStored)] == [12_000, 11_000]
    assert all(event.blocks for event in rig.of(ResultStored))
    for event in rig.of(ResultStored):
        assert (folder(rig) / event.path).read_text() == "z" * event.chars
    rig.turn("again")
    assert [result_text(block) for block in rig.results()] == got
    assert ContextView.of(rig.events()).messages == rig.agent.session.view.messages


def test_largest_first_takes_no_more_than_it_must() -> None:
    assert largest_first({"a": 10, "b": 30, "c": 20}, 60, 1) == []
    assert largest_first({"a": 10, "b": 30, "c": 20}, 59, 1) == ["b"]
    assert largest_first({"a": 10, "b": 30, "c": 20}, 15, 1) == ["b", "c"]
    assert largest_first({"a": 10, "b": 10}, 15, 1) == ["a"]
    assert largest_first({"a": 5, "b": 4}, 1, 6) == []  # a preview is longer


def test_later_requests_and_a_resumed_session_carry_the_same_bytes(make: Callable[..., Rig]) -> None:
    rig = make()
    [shown] = run(rig, BIG)
    for _ in range(2):
        rig.server.script(text("and on"))
        rig.turn("go on")
        assert result_text(rig.results()[0]) == shown
    before = json.dumps(rig.agent.session.view.messages)
    rig.close()
    again = make(store_chars=200, preview_chars=100)  # other settings change nothing that was decided
    again.agent.resume()
    assert json.dumps(again.agent.session.view.messages) == before
    again.server.script(text("here"))
    again.turn("where were we")
    assert result_text(again.results()[0]) == shown


def test_the_object_lives_under_its_handle_and_a_later_call_slices_it(make: Callable[..., Rig]) -> None:
    rig = make(store_chars=2_000)
    shown, part, same = run(
        rig,
        "table = {f'key {n}': list(range(n)) for n in range(300)}\ntable",
        '_agent["r1"]["key 7"]',
        '_agent["r1"] is table',
    )
    assert "handle=\"_agent['r1']\"" in shown.splitlines()[0]
    assert "dict 300" in shown
    assert '_agent["r1"] in python' in shown
    assert (part, same) == ("[0, 1, 2, 3, 4, 5, 6]", "True")
    assert [event.handle for event in rig.of(ResultStored)] == ['_agent["r1"]']
    names = run(rig, "%who")
    assert "_agent" not in names[-1]


def test_what_a_preview_shows_and_what_its_file_holds(make: Callable[..., Rig]) -> None:
    rig = make(store_chars=300)
    table, rows, both, _ = run(
        rig,
        "import pandas as pd\n"
        "birds = pd.DataFrame({'n': range(1_000), 'weight': [None if n % 7 == 0 else n / 2 for n in range(1_000)]})\n"
        "birds",
        '_agent["r1"].iloc[500:502]["n"].tolist()',
        "for n in range(200): print('step', n)\nlist(range(5_000))",
        "'\\n'.join(f'{n},{n * n}' for n in range(2_000))",
    )
    assert "DataFrame 1000 x 2" in table
    assert "weight: f64, 143 missing" in table
    assert "[999]" in table
    assert rows == "[500, 501]"
    assert "step 0" in both
    assert "list 5,000 of int" in both
    _, printed, words = rig.of(ResultStored)
    assert (folder(rig) / printed.path).read_text().startswith("step 0\nstep 1\n")
    assert Path(words.path).suffix == ".csv", "a text is stored as it is, and not as its repr"
    assert (folder(rig) / words.path).read_text().splitlines()[9] == "9,81"
    assert words.lines == 2_000


def test_a_user_tools_object_has_a_handle_and_a_json_file(make: Callable[..., Rig]) -> None:
    def rows(n: int) -> list[dict[str, int]]:
        """Give rows."""
        return [{"id": k, "square": k * k} for k in range(n)]

    rig = make(tools=[ipyagent.tool(permission="none")(rows)])
    rig.server.script(tool("rows", {"n": 3_000}), tool("python", {"code": '_agent["r1"][50]["square"]'}), text("ok"))
    rig.turn()
    shown, part = (result_text(block) for block in rig.results())
    [event] = rig.of(ResultStored)
    assert Path(event.path).suffix == ".json"
    assert json.loads((folder(rig) / event.path).read_text())[2_999]["square"] == 2_999**2
    assert "list 3,000 of dict" in shown
    assert part == "2500"


def test_only_the_newest_objects_stay_and_a_gone_one_names_its_file(make: Callable[..., Rig]) -> None:
    rig = make(store_chars=300, live_objects=2)
    run(rig, *(f"list(range({n}, {n} + 400))" for n in range(3)))
    gone, kept = run(rig, '_agent["r1"]', '(_agent["r3"][0], sorted(_agent))')[-2:]
    place = f".ipyagent/sessions/{folder(rig).name}/{rig.of(ResultStored)[0].path}"
    assert "KeyError" in gone
    assert "is gone" in gone
    assert place in gone
    assert (rig.folder / place).read_text().startswith("[0,")
    assert kept == "(2, ['r2', 'r3'])"


def test_a_name_of_the_users_own_is_left_alone(make: Callable[..., Rig]) -> None:
    rig = make(store_chars=300)
    rig.agent.shell.user_ns["_agent"] = "mine"
    [shown] = run(rig, "list(range(400))")
    assert shown.startswith("<persisted-output")
    assert "handle" not in shown.splitlines()[0]
    assert rig.agent.shell.user_ns["_agent"] == "mine"


def test_in_a_real_kernel_a_handle_works_and_a_restart_says_that_it_is_gone(tmp_path: Path) -> None:
    with PracticeServer() as server, room(tmp_path, server=server, IPYAGENT_MODE="auto") as place:
        place.ok("%load_ext ipyagent")
        look, use = tool("python", {"code": "[n * n for n in range(30_000)]"}), '_agent["r1"][-1]'
        # IPython prints the first thousand items of a list; a text it prints whole
        words = tool("python", {"code": "'\\n'.join(map(str, range(30_000)))"})
        place.asks("square", look, words, tool("python", {"code": 'len(_agent["r1"])'}), text("ok"))
        small, large, length = (result["text"] for result in results(place.sent()))
        assert "persisted-output" not in small
        assert "handle=\"_agent['r1']\"" in large
        assert length == "168889"
        assert place.kernel.eval("'_agent' in get_ipython().user_ns_hidden") is True
        place.restart()
        place.ok("%load_ext ipyagent\n%agent resume")
        place.asks("again", tool("python", {"code": use}), words, text("ok"))
        *before, gone, new = (result["text"] for result in results(place.sent()))
        assert before == [small, large, length]
        assert "KeyError" in gone
        assert "handle=\"_agent['r2']\"" in new
        assert "the kernel was restarted" in gone
        assert "gone, and so are the objects behind `_agent` handles (their files remain)" in str(place.sent())
        files = [*place.folder.glob(f".ipyagent/sessions/*/{FOLDER}/*")]
        assert [file.relative_to(place.folder).as_posix() in gone for file in files].count(True) == 1 < len(files)
        assert str(place.folder) not in as_json(place.sent())


def test_another_sessions_objects_are_not_this_ones(make: Callable[..., Rig]) -> None:
    rig = make(store_chars=300)
    run(rig, "list(range(400))")
    first = folder(rig).name
    rig.agent.new()
    [unknown] = run(rig, '_agent["r1"]')
    assert "no stored result 'r1'" in unknown
    rig.agent.resume(first)
    assert run(rig, 'len(_agent["r1"])')[-1] == "400"


def test_reading_more_needs_no_question_and_is_not_stored_again(make: Callable[..., Rig]) -> None:
    rig = make(mode="read_only")

    def look() -> str:
        """Look."""
        return "\n".join(f"row {n} " + "x" * 60 for n in range(20_000))

    rig.agent.tool_registry.own["look"] = ipyagent.tool(permission="none", writes=False)(look)
    rig.server.script(tool("look", {}), text("ok"))
    rig.turn()
    match = re.search(r'path="([^"]+)"', result_text(rig.results()[0]))
    path = match.group(1)
    rig.server.script(
        tool("read_file", {"path": path, "offset": 15_001, "limit": 2_000}),
        tool("grep", {"path": path, "pattern": "row 1234[5-6] "}),
        tool("grep", {"path": str(Path(path).parent), "pattern": "row 777 "}),
        tool("read_file", {"path": f"tool-results/{Path(path).name}", "offset": 20_000}),
        text("ok"),
    )
    assert rig.turn("more", Person()).status == "finished"
    assert rig.seen.asked == []
    read, found, within, short = (result_text(block) for block in rig.results()[1:])
    assert read.splitlines()[0] == "15001\trow 15000 " + "x" * 60
    assert "continue with offset=" in read
    assert 20_000 < len(read) < 25_500
    assert "row 12345 " in found
    assert "row 12346 " in found
    assert "row 777 " in within
    assert "row 19999 " in short
    assert len(rig.of(ResultStored)) == 1


def test_one_very_long_line_is_read_to_its_end(make: Callable[..., Rig]) -> None:
    rig = make()
    run(rig, "print('a' * 60_000 + 'END')")
    [event] = rig.of(ResultStored)
    assert event.lines == 31
    rig.server.script(tool("read_file", {"path": event.path, "offset": 31}), text("ok"))
    rig.turn("more")
    assert result_text(rig.results()[-1]).splitlines()[0] == "   31\tEND"


def test_from_a_notebook_in_a_subfolder_the_path_leads_there(make: Callable[..., Rig], tmp_path: Path) -> None:
    (tmp_path / "project" / ".ipyagent").mkdir(parents=True)
    inner = tmp_path / "project" / "notebooks"
    rig = make(folder=inner)
    [shown] = run(rig, BIG)
    match = re.search(r'path="([^"]+)"', shown)
    assert match.group(1).startswith("../.ipyagent/sessions/")
    assert (inner / match.group(1)).is_file()


@pytest.mark.parametrize("off", [{"layer_store_results": False}, {}], ids=["off", "on"])
def test_the_kill_switch_brings_the_old_cut_back(make: Callable[..., Rig], off: dict[str, Any]) -> None:
    rig = make(**off)
    [shown] = run(rig, BIG)
    assert ("left out here" in shown) is bool(off)
    assert (folder(rig) / FOLDER).exists() is not bool(off)
    if off:
        assert 20_000 < len(shown) < 26_000
        assert rig.of(ResultStored) == []


def test_a_smaller_output_setting_still_bounds_what_reaches_the_model() -> None:
    settings = IPyAgent(tool_output_chars=5_000)
    assert limit_of(settings, "store_chars") == 5_000
    assert limit_of(settings, "tool_output_chars") == 4_000_000
    settings.layer_store_results = False
    assert limit_of(settings, "tool_output_chars") == 5_000


def test_when_the_disk_fails_the_result_is_cut_and_the_turn_goes_on(make: Callable[..., Rig]) -> None:
    rig = make()
    run(rig, "1")
    (folder(rig) / FOLDER).write_text("a file where the folder should be")
    shown = run(rig, BIG)[-1]
    assert "characters" in shown
    assert "cut here" in shown
    assert 20_000 < len(shown) < 26_000
    [failed] = failures(rig)
    assert not failed.stopped
    assert "could not be kept" in failed.why
    assert rig.of(ResultStored) == []


def test_when_the_disk_fails_for_many_results_they_stay_whole(make: Callable[..., Rig]) -> None:
    def letters(n: int) -> str:
        """Give letters."""
        return "z" * n

    rig = make(tools=[ipyagent.tool(permission="none")(letters)], store_message_chars=5_000)
    run(rig, "1")
    (folder(rig) / FOLDER).write_text("")
    rig.server.script(calls([("letters", {"n": 4_000})] * 2), text("ok"))
    assert rig.turn().status == "finished"
    assert [len(result_text(block)) for block in rig.results()[-2:]] == [4_000, 4_000]
    assert len(failures(rig)) == 1


def test_a_full_disk_leaves_no_half_file(tmp_path: Path) -> None:
    program = """
        import resource, signal, sys
        from pathlib import Path
        from ipyagent.context.store_results import FullResult, store
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))
        whole = FullResult(call="toolu_1", blocks=[{"type": "text", "text": "x" * 200_000}])
        try:
            store(whole, folder=Path(sys.argv[1]), place="s", limit=100, preview=100)
        except OSError as problem:
            print(problem.errno)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "27"
    assert list((tmp_path / FOLDER).iterdir()) == []


def test_killed_in_mid_write_there_is_no_half_file(tmp_path: Path) -> None:
    program = """
        import sys
        from pathlib import Path
        from ipyagent.context.store_results import FullResult, store
        whole = FullResult(call="toolu", blocks=[{"type": "text", "text": "x" * 8_000_000}])
        print("go", flush=True)
        while True:
            store(whole, folder=Path(sys.argv[1]), place="s", limit=100, preview=100)
    """
    for wait in (0.0, 0.03, 0.07):
        place = tmp_path / str(wait)
        child = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(program), str(place)], stdout=subprocess.PIPE, text=True
        )
        child.stdout.readline()
        time.sleep(wait)
        child.kill()
        child.wait()
        child.stdout.close()
        for file in place.glob(f"{FOLDER}/toolu*"):
            assert file.stat().st_size == 8_000_000


def test_a_stop_while_code_prints_keeps_what_was_printed(make: Callable[..., Rig]) -> None:
    rig = make()
    code = "print('\\n'.join(f'warm {n}' for n in range(50_000)), flush=True)\nimport time\ntime.sleep(30)"
    rig.server.script(tool("python", {"code": code}), text("after"))
    rig.stop_when(lambda: any(getattr(event, "channel", "") == "tool" for event in rig.seen.events))
    assert rig.turn().status == "stopped"
    [event] = rig.of(ResultStored)
    assert (folder(rig) / event.path).read_text().startswith("warm 0\nwarm 1\n")
    returned = rig.of(ToolReturned)[0]
    assert returned.is_error
    assert str(returned.blocks[0]["text"]).startswith("<persisted-output")
    rig.turn("go on")
    assert rig.results()[0]["is_error"] is True


def test_odd_text_is_stored_clean_and_large_output_in_bounds(make: Callable[..., Rig]) -> None:
    rig = make(whole_chars=400_000)
    odd, huge = run(
        rig,
        "for n in range(3_000): print('\\ud800\\x00 a </persisted-output> b', n)",
        "for n in range(50): print(n, 'y' * 10_000)",
    )
    assert odd.count("</persisted-output>") == 1
    assert for_person(odd).startswith("\ufffd a </persisted-output> b 0\n")
    first, second = rig.of(ResultStored)
    text_ = (folder(rig) / first.path).read_text(encoding="utf-8")
    assert text_.startswith("\ufffd a </persisted-output> b 0\n")
    assert "\x00" not in text_
    assert 390_000 < second.chars < 410_000
    assert "left out here" in (folder(rig) / second.path).read_text()
    assert len(huge) < 3_000


def test_bytes_are_stored_as_they_are(make: Callable[..., Rig]) -> None:
    data = bytes(range(256)) * 400

    def fetch() -> bytes:
        """Fetch."""
        return data

    rig = make(tools=[ipyagent.tool(permission="none")(fetch)])
    rig.server.script(tool("fetch", {}), tool("python", {"code": '_agent["r1"][256:260]'}), text("ok"))
    rig.turn()
    [event] = rig.of(ResultStored)
    assert Path(event.path).suffix == ".bin"
    assert (folder(rig) / event.path).read_bytes() == data
    shown, part = (result_text(block) for block in rig.results())
    assert f"{len(data):,} bytes" in shown
    assert part == r"b'\x00\x01\x02\x03'"


def test_a_picture_goes_to_the_model_scaled_and_into_a_file(make: Callable[..., Rig]) -> None:
    rig = make()
    code = "import os, PIL.Image\nPIL.Image.frombytes('RGB', (2_500, 200), os.urandom(1_500_000))"
    rig.server.script(tool("python", {"code": code}), text("ok"))
    rig.turn()
    [event] = rig.of(ResultStored)
    assert Path(event.path).suffix == ".png"
    [block] = rig.results()
    picture = next(part for part in block["content"] if part["type"] == "image")
    data = base64.b64decode(picture["source"]["data"])
    assert int.from_bytes(data[16:20], "big") == 1_568
    assert (folder(rig) / event.path).read_bytes() == data
    assert "The image above" in result_text(block)


def test_the_models_key_is_in_no_file(make: Callable[..., Rig]) -> None:
    def leak() -> bytes:
        """Leak."""
        return KEY.encode() * 6_000

    rig = make(tools=[ipyagent.tool(permission="none")(leak)])
    rig.server.script(
        tool("python", {"code": "import os\nprint(os.environ['ANTHROPIC_API_KEY'] * 6_000)"}),
        tool("python", {"code": "os.environ['ANTHROPIC_API_KEY'] * 6_000"}),
        tool("leak", {}),
        text("ok"),
    )
    rig.turn()
    assert len(rig.of(ResultStored)) == 3
    rig.no_key()
    assert KEY not in json.dumps(rig.server.messages[-1].body)


def test_errors_are_stored_as_errors_with_the_message_in_sight(make: Callable[..., Rig]) -> None:
    rig = make(store_chars=2_000)
    [shown] = run(rig, "for n in range(2_000): print('work', n)\nimport json\njson.loads('{')")
    assert "JSONDecodeError" in shown
    assert "work 0" in shown
    assert rig.results()[0]["is_error"] is True


def test_a_file_is_never_written_twice_and_odd_ids_stay_in_the_folder(tmp_path: Path) -> None:
    def put(call: str, said: str) -> str:
        whole = FullResult(call=call, blocks=[{"type": "text", "text": said}])
        return store(whole, folder=tmp_path, place="s", limit=3, preview=100).events[-1].path

    assert put("toolu_1", "first") == "tool-results/toolu_1.txt"
    assert put("toolu_1", "second") == "tool-results/toolu_1-2.txt"
    assert (tmp_path / "tool-results/toolu_1.txt").read_text() == "first"
    for call in ("../../../etc/passwd", "", "ü" * 500, "a/b\\c\x00"):
        path = tmp_path / put(call, "odd text")
        assert path.parent == tmp_path / FOLDER
        assert re.fullmatch(r"[A-Za-z0-9_.-]{1,100}", path.name)
    assert file_stem("a/b") != file_stem("a_b")
    assert os.stat(path).st_mode & 0o077 == 0


def test_kinds_are_told_by_the_text() -> None:
    assert kind_of_text('{"a": [1, 2]}') == "json"
    assert kind_of_text("{not json") == "txt"
    assert kind_of_text("a,b\n1,2\n3,4\n") == "csv"
    assert kind_of_text("one, two\nthree\nfour, five, six\n") == "txt"
    assert kind_of_text("") == "txt"


def test_excerpts_keep_to_their_limit_and_show_what_matters() -> None:
    log = "\n".join(f"line {n}" for n in range(9_999))
    cut = excerpt(log, "txt", 500)
    assert cut.startswith("line 0\n")
    assert cut.endswith("line 9998")
    assert "lines between" in cut
    whole = json.dumps({"rows": list(range(5_000)), "name": "birds"})
    assert excerpt(whole, "json", 600).startswith('JSON object of 2: rows (array of 5,000), name ("birds")')
    trace = log + "\nTraceback (most recent call last):\n  File \"<cell>\", line 1\nValueError: the reason"
    assert excerpt(trace, "txt", 500).endswith("ValueError: the reason")
    deep = "Traceback (most recent call last):\n" + "  File \"<cell>\", line 1\n" * 900 + "RecursionError: too deep"
    assert excerpt(deep, "txt", 500).endswith("RecursionError: too deep")
    for sample in (log, whole, trace, deep, "x" * 90_000, "\n" * 90_000, "a\n" + "b" * 90_000, "ab\n" * 3):
        for limit in (100, 500, 2_000):
            assert len(excerpt(sample, kind_of_text(sample), limit)) <= limit + 120
    assert lines_of("a\n" + "b" * 4_001) == ["a", "b" * 2_000, "b" * 2_000, "b"]
