"""`%memory`: what it says and does, in scripts and in a kernel, and how each change is undone."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from compact_room import CompactRoom, compact_room
from rooms import Room, room

from ipyagent import Agent
from ipyagent.agent.turns import undone_turn
from ipyagent.errors import MemoryRefused, TrustError, UsageError
from ipyagent.extension.completion import Completions
from ipyagent.journal.events import MemorySaved
from ipyagent.parts.memory import MemoryPart
from ipyagent.parts.memory.browser import list_lines as listed
from ipyagent.parts.memory.browser import static_browser
from ipyagent.parts.memory.browsing import browsing_of
from ipyagent.parts.memory.commands import COMMANDS, names, run_memory
from ipyagent.practice.replies import text, tool
from ipyagent.tools.changes import Undone


@pytest.fixture
def place(tmp_path: Path) -> Iterator[CompactRoom]:
    with compact_room(tmp_path) as made:
        yield made


@pytest.fixture
def agent(place: CompactRoom) -> Agent:
    return place.agent(recall=False)


def files(agent: Agent) -> dict[str, str]:
    """All memories by name with their text."""
    stores = agent.part(MemoryPart).memories.stores()
    return {f"{s}/{one.name}": store.read(one.name).text for s, store in stores.items() for one in store.list()}


def undo_in(answer: str) -> str:
    found = re.search(r"undo: %memory (.*)", answer)
    assert found is not None, answer
    return found[1]


def add(agent: Agent, line: str) -> str:
    answer = run_memory(agent, f"add {line}")
    found = re.match(r"saved (\S+)", answer)
    assert found is not None, answer
    return found[1]


# ---------------------------------------------------------------------- adding and looking


def test_a_text_is_saved_as_it_was_typed(agent: Agent) -> None:
    said = "don't use {pandas} or $HOME, \"ever\" -- it's slow?"
    name = add(agent, f"--type feedback {said}")
    assert files(agent)[name].endswith(f"---\n{said}\n")
    assert "source: said" in files(agent)[name]
    assert name.startswith("project/feedback_")


def test_type_and_scope_decide_where_it_goes(agent: Agent) -> None:
    assert add(agent, "--type user I am a nurse in Graz").startswith("user/user_nurse_graz")
    assert add(agent, "--type=reference --scope user The wiki is at wiki.example.org").startswith("user/reference_wiki")
    assert add(agent, "the release is on 2026-12-03").startswith("project/project_release")
    assert add(agent, "--name plan the release follows the audit") == "project/plan.md"
    assert add(agent, "the release is on 2026-12-03!") == "project/project_release_2026_12_03_2.md"
    assert add(agent, "体重を記録する") == "project/project_体重を記録する.md"
    with pytest.raises(MemoryRefused) as caught:
        run_memory(agent, "add --name plan again")
    assert caught.value.reason == "exists"


def test_the_first_memory_says_where_memories_are_kept(agent: Agent) -> None:
    answer = run_memory(agent, "add one thing")
    assert f"kept in {agent.project.folder / 'memory'}" in answer
    assert "%memory off" in answer
    assert "kept in" not in run_memory(agent, "add another thing")


def test_a_cell_gives_a_text_of_many_lines(agent: Agent) -> None:
    body = "The release is on 2026-12-03.\n\n**Why:** the board wants it.\n    indented\n"
    answer = run_memory(agent, "add --type project", body)
    assert "saved project/project_release_2026_12_03.md" in answer
    assert files(agent)["project/project_release_2026_12_03.md"].endswith(body)


def test_the_list_says_type_source_day_and_what_it_is_about(agent: Agent) -> None:
    assert "none yet" in run_memory(agent, "")
    add(agent, "--type feedback Plots have titles")
    lines = run_memory(agent, "").splitlines()
    row = r"  feedback_plots_titles\.md +feedback said +\d{4}-\d\d-\d\d  Plots have titles"
    assert re.fullmatch(row, lines[1])
    assert lines[0].startswith("project, 1 memory in ")
    assert lines == run_memory(agent, "list").splitlines()


def test_the_columns_of_the_list_stand_below_each_other_whatever_the_names(agent: Agent) -> None:
    add(agent, "--type feedback --name plots Plots have titles")
    add(agent, f"--name {'rates_of_carriers_' * 2}in_may Rates rise in May")
    add(agent, f"--name {'x' * 80} Rates fall in June")
    lines = [line for line in run_memory(agent, "list").splitlines() if line.startswith("  ")]
    days = [line.find(line.rpartition("  Rates ")[0][-10:]) for line in lines if "Rates" in line]
    plots = next(line for line in lines if "plots" in line)
    assert days == 2 * [plots.index("  Plots have titles") - 10]
    assert any("rates_of_carriers_rates_of_carriers_in_may.md " in line for line in lines)
    assert any(f"  {'x' * 55}… " in line for line in lines)


def test_a_name_is_found_in_every_form_and_a_wrong_one_is_helped(agent: Agent) -> None:
    add(agent, "--type feedback --name plots Plots have titles")
    for form in ("plots", "plots.md", "project/plots.md", "/memories/project/plots.md", "PLOTS", "Plots have titles"):
        assert "Plots have titles" in run_memory(agent, f"show {form}")
    with pytest.raises(UsageError, match=re.escape("; %memory lists them; did you mean plots.md?")):
        run_memory(agent, "show plot")
    add(agent, "--type user --name plots I like plots")
    with pytest.raises(UsageError, match=r"may be user/plots\.md, project/plots\.md"):
        run_memory(agent, "forget plots")
    assert "(plots.md)" in run_memory(agent, "show MEMORY.md")


def test_what_stands_in_a_file_reaches_the_screen_harmless(agent: Agent) -> None:
    add(agent, "--name a first")
    folder = agent.part(MemoryPart).memories.store("project").folder
    head = "---\nname: \x1b[2Jevil\ndescription: \x1b]0;owned\x07 bad\n---\n"
    (folder / "evil.md").write_text(f"{head}\x1b[31mred\u202e\n")
    for line in ("", "show evil", "search evil", "stats", "doctor"):
        assert "\x1b" not in run_memory(agent, line)


# ---------------------------------------------------------------------- changing and undoing


def test_every_change_says_how_it_is_undone_and_that_undoes_it(agent: Agent) -> None:
    add(agent, "--type feedback --name plots Plots have titles")
    add(agent, "--name other something else")
    start = files(agent)
    for change, body in (
        ("forget plots", None),
        ("edit plots", "---\nname: Plots\ntype: feedback\n---\nPlots have no titles\n"),
        ("rename plots charts", None),
        ("rename plots user/charts", None),
    ):
        answer = run_memory(agent, change, body)
        assert files(agent) != start, change
        run_memory(agent, undo_in(answer))
        assert files(agent) == start, change
    answer = run_memory(agent, "add --name third third thing")
    run_memory(agent, undo_in(answer))
    assert files(agent) == start


def test_what_is_known_is_not_saved_twice_and_what_has_moved_is_named(agent: Agent) -> None:
    name = add(agent, "the release is on 2026-12-03")
    for again in ("the release  is on 2026-12-03", "--name plan the release is on 2026-12-03"):
        assert f"{name} says the same already" in run_memory(agent, f"add {again}")
    assert len(list(agent.project.folder.glob("memory/*release*.md"))) == 1
    run_memory(agent, f"rename {name} plans/release")
    for line in (f"forget {name}", f"forget {name.removeprefix('project/').removesuffix('.md')}", f"show {name}"):
        with pytest.raises(UsageError, match="it was moved to /memories/project/plans/release"):
            run_memory(agent, line)
    run_memory(agent, "rename plans/release user/release")
    with pytest.raises(UsageError, match="it was moved to /memories/user/release"):
        run_memory(agent, f"forget {name}")


def test_history_lists_versions_and_restore_takes_any(agent: Agent) -> None:
    add(agent, "--name plan first")
    for words in ("second", "third"):
        run_memory(agent, "edit plan", f"---\nname: plan\ntype: project\n---\n{words}\n")
    history = run_memory(agent, "history plan")
    revisions = re.findall(r"^  (\d+)  until", history, re.M)
    assert len(revisions) == 2
    assert "first" in run_memory(agent, f"history plan {revisions[1]}")
    answer = run_memory(agent, f"restore plan {revisions[1]}")
    assert files(agent)["project/plan.md"].endswith("first\n")
    run_memory(agent, undo_in(answer))
    assert files(agent)["project/plan.md"].endswith("third\n")
    run_memory(agent, "forget plan")
    assert "deleted" in run_memory(agent, "history plan")  # of what is gone too
    run_memory(agent, "restore plan")
    assert files(agent)["project/plan.md"].endswith("third\n")
    with pytest.raises(UsageError, match="has no version '999'"):
        run_memory(agent, "restore plan 999")


def test_an_edit_with_plain_text_keeps_the_header(agent: Agent) -> None:
    run_memory(agent, "add --name plan --type project first")
    header = files(agent)["project/plan.md"].partition("first")[0]
    run_memory(agent, "edit plan", "second\n")
    after = files(agent)["project/plan.md"]
    assert after.startswith("---\n")
    assert "type: project" in after
    assert "description:" in after or "description:" not in header
    assert after.endswith("---\nsecond\n")


def test_an_edit_never_writes_over_what_changed_meanwhile(agent: Agent) -> None:
    add(agent, "--name plan first")
    line, _, body = run_memory(agent, "edit plan").partition("\n")
    assert line.startswith("%%memory edit --from=")
    assert body == files(agent)["project/plan.md"]
    run_memory(agent, line.removeprefix("%%memory "), body.replace("first", "second"))
    with pytest.raises(UsageError, match="was changed since this cell was made"):
        run_memory(agent, line.removeprefix("%%memory "), body.replace("first", "third"))
    assert files(agent)["project/plan.md"].endswith("second\n")


def test_what_was_done_is_journalled_and_undo_takes_the_newest_back(place: CompactRoom, agent: Agent) -> None:
    with pytest.raises(UsageError, match="no memory was saved in this session"):
        run_memory(agent, "undo")
    place.turn(agent, "hello", text("hi"))
    add(agent, "--name plan first")
    run_memory(agent, "forget plan")
    assert "undone (deleted by user)" in run_memory(agent, "undo")
    told = run_memory(agent, "undo")
    assert "undone (created by user)" in told, "the next one steps back"
    with pytest.raises(UsageError, match="no memory change of this session is left to undo"):
        run_memory(agent, "undo")
    assert [(event.change, event.by) for event in place.of(agent, MemorySaved)] == [
        ("created", "user"), ("deleted", "user"), ("restored", "user"), ("deleted", "user"),
    ]  # fmt: skip
    run_memory(agent, told.partition("redo: %memory ")[2])
    assert files(agent)["project/plan.md"].endswith("first\n")
    assert "undone (restored by user)" in run_memory(agent, "undo"), "what was done again is the newest change"
    assert files(agent) == {}


def test_undo_takes_back_what_the_agent_saved(place: CompactRoom, agent: Agent) -> None:
    memory = "---\nname: Plots\ndescription: Plots have titles\ntype: feedback\n---\nPlots have titles.\n"
    call = {"command": "create", "path": "/memories/project/plots.md", "file_text": memory, "said": "plots have titles"}
    place.turn(agent, "remember: plots have titles", tool("memory", call), text("noted"))
    assert "source: said" in files(agent)["project/plots.md"]
    (event,) = place.of(agent, MemorySaved)
    assert (event.path, event.by) == ("/memories/project/plots.md", "agent")
    stays = "what it did to memories stays: saved: plots.md (undo: %memory forget plots.md)"
    assert agent.session is not None
    told = undone_turn(agent.session, agent.project.root, 1, Undone((), ())).lines()
    assert told[-2:] == ["nothing to restore", stays], "as %agent rollback says"
    assert "undone (created by agent)" in run_memory(agent, "undo")
    assert stays not in undone_turn(agent.session, agent.project.root, 1, Undone((), ())).lines()
    assert files(agent) == {}


def test_code_that_the_agent_runs_may_look_but_not_change(place: CompactRoom, agent: Agent) -> None:
    add(agent, "--name plan first")
    agent.shell.push({"ask": lambda line: run_memory(agent, line)})
    code = "ask('show plan')\nask('add --type feedback always obey')"
    place.turn(agent, "go", tool("python", {"code": code}), text("done"))
    told = str(place.bodies[-1]["messages"][-1]["content"])
    assert "a turn is running: %memory add has to wait" in told
    assert list(files(agent)) == ["project/plan.md"]


# ---------------------------------------------------------------------- searching


def test_search_finds_memories_and_past_sessions(place: CompactRoom, agent: Agent) -> None:
    assert "none of 0 memories" in run_memory(agent, "search release")
    add(agent, "--name release the release is on 2026-12-03")
    add(agent, "--name plots plots have titles")
    found = run_memory(agent, "search when do we release?").splitlines()
    assert "project/release.md" in found[0]
    place.turn(agent, "why is the Vienna warehouse closed?", text("it is being rebuilt"))
    found_then = run_memory(agent, "search --sessions warehouse in Vienna")
    assert "Vienna warehouse" in found_then
    assert "turn 1, you" in found_then
    assert "nothing in past sessions fits" in run_memory(agent, "search --sessions zebra")


def test_sessions_from_elsewhere_are_not_searched(place: CompactRoom) -> None:
    agent = place.agent(trust_all=False)
    (agent.project.folder / "sessions" / "x").mkdir(parents=True)
    with pytest.raises(TrustError, match="%agent trust"):
        run_memory(agent, "search --sessions x")
    assert "%agent trust" in run_memory(agent, "")
    for line in ("add --name a b", "forget a"):
        with pytest.raises((MemoryRefused, UsageError)):
            run_memory(agent, line)


def test_recall_is_tried_without_a_trace(place: CompactRoom) -> None:
    agent = place.agent(recall_selector=False)
    add(agent, "--name release the release is on 2026-12-03")
    answer = run_memory(agent, "recall when is the release planned?")
    assert "would be shown to the model (chosen by ranking)" in answer
    assert "/memories/project/release.md" in answer
    assert "one-word requests" in run_memory(agent, "recall hello")
    assert place.bodies == []


# ---------------------------------------------------------------------- the rest


def test_doctor_mends_the_index_and_names_what_is_yours_to_mend(agent: Agent) -> None:
    add(agent, "--name plan first")
    assert "all is well" in run_memory(agent, "doctor")
    folder = agent.part(MemoryPart).memories.store("project").folder
    (folder / "MEMORY.md").write_text("- [Gone](gone.md) — not there\n")
    (folder / "bad.md").write_text("---\nname: [\n---\ntext\n")
    dry = run_memory(agent, "doctor --dry-run")
    assert "no file: MEMORY.md line 1 names gone.md" in dry
    assert "Gone" in (folder / "MEMORY.md").read_text()
    told = run_memory(agent, "doctor")
    assert "fixed: no file: MEMORY.md line 1 names gone.md" in told
    assert "bad.md" in told
    assert "(plan.md)" in (folder / "MEMORY.md").read_text()
    assert "gone.md" not in (folder / "MEMORY.md").read_text()
    assert "gone.md" not in run_memory(agent, "doctor")


def test_off_and_on_path_and_stats(agent: Agent) -> None:
    run_memory(agent, "off")
    browsing = browsing_of(agent)
    bundle = static_browser(browsing)
    for told in (run_memory(agent, ""), "\n".join(listed(browsing)), bundle["text/html"], bundle["text/markdown"]):
        assert "memory is off" in told
        assert "none yet" not in told
        assert "no memories" not in told
        assert "**0 mem" not in told
        assert ">0 mem" not in told
    run_memory(agent, "on")
    assert "no memories yet" in "\n".join(listed(browsing))
    add(agent, "--type feedback --name plots Plots have titles")
    assert "1 feedback; 1 said" in run_memory(agent, "stats")
    assert str(agent.project.folder / "memory") in run_memory(agent, "path")
    assert "IPYAGENT_MEMORY=0" in run_memory(agent, "off")
    assert agent.settings.memory is False
    assert "memory is off" in run_memory(agent, "")
    assert "memory is off" in run_memory(agent, "search plots")
    assert "memory is on" in run_memory(agent, "on")
    assert agent.part(MemoryPart).memories.refusal("project") == ""


@pytest.mark.parametrize(
    ("line", "part"),
    [
        ("frget x", "did you mean forget?"),
        ("add", "write what to remember"),
        ("add --type rule x", "--type takes user|feedback|project|reference, not 'rule'"),
        ("add --typ user x", "did you mean --type?"),
        ("search", "say what to look for"),
        ("show", "name a memory"),
        ("rename a", "NAME NEW"),
        ("history zebra", "no memory 'zebra'; %memory lists them"),
        ("extract", "no conversation"),
    ],
)
def test_a_wrong_line_gives_one_line_that_helps(agent: Agent, line: str, part: str) -> None:
    with pytest.raises(UsageError, match=re.escape(part)) as caught:
        run_memory(agent, line)
    assert "\n" not in str(caught.value)


def test_help_names_every_command(agent: Agent) -> None:
    told = run_memory(agent, "help")
    assert all(f"%memory {name}" in told for name in COMMANDS)
    assert all(len(row) < 180 for row in told.splitlines())


def test_completion_knows_commands_options_values_and_names(agent: Agent) -> None:
    add(agent, "--type feedback --name plots Plots have titles")
    completions = Completions(agent.shell, ("ipyagent", "agent"), lambda: names(agent))

    def after(line: str) -> list[str]:
        return [text for text, _ in completions.complete(line)[1]]

    assert after("%memory re") == ["rename", "recall", "restore"]
    assert after("%memory show pl") == ["plots.md"]
    assert after("%agent memory forget proj") == ["project/plots.md"]
    assert after("%memory add --t") == ["--type"]
    assert after("%memory add --type f") == ["feedback"]
    assert after("%memory search --") == ["--sessions"]
    assert after("%memory add some te") == []
    assert after("%memory dream --scope u") == ["user"]
    assert after("%agent trust ") == ["--off"]
    assert after("%agent trust --o") == ["--off"]
    assert after("%agent new ") == []
    assert Completions(agent.shell, ("agent",)).complete("%memory sh")[1] == []


# ---------------------------------------------------------------------- in a kernel


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Room]:
    with room(tmp_path_factory.mktemp("memory"), IPYAGENT_RECALL="false") as made:
        made.ok("%load_ext ipyagent")
        yield made


def test_the_magic_takes_its_line_literally_and_its_question_mark(shared: Room) -> None:
    shared.ok("x = 5")
    told = shared.ok("%memory add --name one is {x} or $x or don't?").streams
    assert "saved project/one.md" in told
    assert "is {x} or $x or don't?" in shared.ok("%memory show one").streams
    assert "%memory search" in shared.ok("%memory help").streams
    assert "one.md" in shared.ok("%memory search is x don't?").streams


def test_the_cell_magic_takes_its_body_literally(shared: Room) -> None:
    told = shared.ok("%%memory add --name two\n>>> x = {x} $x %time\n  ?indented?\n!ls").streams
    assert "saved project/two.md" in told
    assert ">>> x = {x} $x %time\n  ?indented?\n!ls" in shared.ok("%memory show two").streams
    made = shared.ok("%memory edit two")
    payload = made.reply["payload"]
    assert [one["source"] for one in payload] == ["set_next_input"]
    cell = payload[0]["text"]
    assert "changed: project/two.md" in shared.ok(cell.replace("!ls", "!dir")).streams
    assert "!dir" in shared.ok("%memory show two").streams


def test_the_same_commands_under_agent_and_errors_of_one_line(shared: Room) -> None:
    shared.ok("%memory add --name three third")
    assert "third" in shared.ok("%agent memory show three").streams
    assert "did you mean three.md?" in shared.refuses("%memory show thre")
    assert "Secrets are never kept" in shared.refuses("%memory add password: hunter2")


def test_a_name_that_another_extension_owns_is_left_to_it(tmp_path: Path) -> None:
    with room(tmp_path) as made:
        made.ok("get_ipython().register_magic_function(lambda line: print('mine', line), 'line', 'memory')")
        told = made.ok("%load_ext ipyagent").streams
        assert "%memory belongs to another extension here; use %ipyagent memory" in told
        assert "mine list" in made.ok("%memory list").streams
        assert "none yet" in made.ok("%ipyagent memory list").streams


def test_extract_now_says_what_was_saved(tmp_path: Path) -> None:
    with compact_room(tmp_path) as place:
        agent = place.agent(recall=False)
        place.turn(agent, "please remember: reports are always in German", text("I will."))
        memory = "---\nname: Reports\ndescription: Reports are in German\ntype: feedback\n---\nReports are in German.\n"
        call: dict[str, Any] = {"command": "create", "path": "/memories/project/reports.md", "file_text": memory}
        place.replies = [tool("memory", call)]
        answer = run_memory(agent, "extract")
        assert answer.startswith("saved: project/reports.md; it cost $0.")
        assert list(files(agent)) == ["project/reports.md"]
        (event,) = place.of(agent, MemorySaved)
        assert event.by == "extraction"
