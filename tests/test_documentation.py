"""README, pages and reference are true: generated where they can be, and every command, setting, file and example in
them is tried."""

from __future__ import annotations

import ast
import inspect
import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import nbformat
import pytest
from kernels import ROOT
from rooms import Room, room

from ipyagent import IPyAgent, agent_map
from ipyagent.__main__ import make_parser
from ipyagent.assembly.settings import read_settings
from ipyagent.config import setting_names
from ipyagent.eval.questions import read_questions
from ipyagent.extension import FLAGS, VALUES
from ipyagent.extension.commands import ARGUMENTS, BARE
from ipyagent.extension.reference import OPTIONS, every_command, reference
from ipyagent.loop.hooks import NAMES, HooksFile
from ipyagent.parts import mcp, skills
from ipyagent.parts.mcp import parse_add
from ipyagent.parts.mcp.entries import read_entries
from ipyagent.parts.memory import commands as memory
from ipyagent.parts.subagents.types import defined
from ipyagent.version import __version__

README = (ROOT / "README.md").read_text("utf-8")
REFERENCE = ROOT / "docs" / "reference.md"
PAGES = {path: path.read_text("utf-8") for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))}
GUIDES = "\n\n".join(text for path, text in PAGES.items() if path != REFERENCE)
"""What people wrote; the reference is made from the code."""
CODE = re.compile(r"`([^`\n]+)`")
FENCE = re.compile(r"^```(\S*)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
INCLUDED = re.compile(r"^```{include} \.\./(\S+)$", re.MULTILINE)
PLACEHOLDER = re.compile(r"[A-Z]{2,}|[…\[|]|\b[NAB]\b|://")
ELSEWHERE = {
    "%agent allow mcp__server__tool": "there is no server",
    "%agent fix": "there is no newest error in the room",
    "%agent model practice": "it is on the practice model",
    "%agent trust": "the room's folder is its own",
    "%agent mcp trust": "there is no server",
    "%agent stop": "nothing runs",
    "%agent undo": "no file was changed; in assembly/test_undo.py",
    "%agent mcp restart": "there is no server",
    "%compact": "there is too little",
    "%agent compact": "there is too little",
    "%compact --dry-run": "there is too little",
    "%compact --step --dry-run": "in the lesson, notebooks/08",
    "%compact --undo": "nothing was compacted",
    "%compact --step": "in the lesson, notebooks/08",
    "%memory dream": "in the lesson, notebooks/02",
    "%memory dream --accept": "no dream waits; in parts/memory",
    "%memory dream --undo": "no dream was; in parts/memory",
    "%memory undo": "no memory was saved; in parts/memory",
    "%agent panel": "in a page, tests/browser",
    "%context --panel": "in a page, tests/browser",
}
"""Commands without an argument that README names and this file does not run, and why."""


def test_the_reference_is_what_the_code_says() -> None:
    assert "Undefined" not in reference(make_parser())
    assert REFERENCE.read_text("utf-8") == reference(make_parser()) + "\n", (
        "run `ipyagent reference > docs/reference.md`"
    )


def test_the_reference_lists_every_command_with_what_it_takes_and_does() -> None:
    takes = {name for name, each in every_command().items() if not each.usage} - {*BARE, "pin"}
    assert sorted(ARGUMENTS) == sorted(takes)
    text = PAGES[REFERENCE]
    for title, known in {**TABLES, "In a shell": (), "Settings": tuple(setting_names())}.items():
        (section,) = re.findall(rf"^## `?{re.escape(title)}`?\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
        rows = [re.split(r"(?<!\\)\|", line)[1:-1] for line in section.splitlines() if line.startswith("| `")]
        assert {row[0].strip(" `").split()[0] for row in rows} >= set(known), title
        assert rows
        assert all(cell.strip(" `") for row in rows for cell in row), title


def test_every_option_of_a_cell_is_in_the_reference() -> None:
    assert sorted(option.split()[0] for option in OPTIONS) == sorted((*FLAGS, *VALUES))


def inline() -> list[str]:
    """Code in sentences and tables, and the one-line magics that stand in a block of their own."""
    blocks = [line for kind, text in FENCE.findall(GUIDES) if not kind for line in text.splitlines()]
    magics = [line for line in blocks if re.match(r"%[a-z]", line)]
    return [" ".join(found.split()).replace("\\|", "|") for found in CODE.findall(FENCE.sub("", GUIDES))] + magics


TABLES = {
    "%agent": tuple(every_command()),
    "%memory": tuple(memory.COMMANDS),
    "%skills": tuple(skills.COMMANDS),
    "%agent mcp": tuple(mcp.COMMANDS),
}


def test_every_command_that_is_named_is_there() -> None:
    wrong = []
    for found in inline():
        for magic, known in TABLES.items():
            words = found.removeprefix(magic).split() if found.startswith(f"{magic} ") else []
            if words and re.fullmatch(r"[a-z]+", words[0]) and words[0] not in known:
                wrong.append(found)
        words = found.split()
        if words[0] == "ipyagent" and len(words) > 1:
            with pytest.raises(SystemExit) as left:
                make_parser().parse_args([words[1], "--help"])
            if left.value.code:
                wrong.append(found)
    assert wrong == []


def test_every_setting_that_is_named_is_there() -> None:
    named = {name for found in inline() for name in re.findall(r"IPyAgent\.([a-z_]+)", found)}
    named |= {name.lower() for found in inline() for name in re.findall(r"IPYAGENT_([A-Z_]+)", found)}
    known = {*setting_names(), "home", "name", "project"}
    assert named - known == set()


def anchors(text: str) -> set[str]:
    """The places of a page that a link can name, as GitHub and the site make them from headings."""
    for name in INCLUDED.findall(text):
        text = (ROOT / name).read_text("utf-8")
    titles = [line.lstrip("#").strip() for line in FENCE.sub("", text).splitlines() if line.startswith("#")]
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_is_there(page: Path) -> None:
    text = PAGES[page]
    for target in re.findall(r"\]\(([^)\s]+)\)", FENCE.sub("", text)) + re.findall(r'(?:src|srcset)="([^"]+)"', text):
        if "://" not in target:
            path, _, anchor = target.partition("#")
            file = (page.parent / path).resolve() if path else page
            assert file.exists(), target
            assert not anchor or anchor in anchors(file.read_text("utf-8")), target


def test_every_page_is_in_the_list_of_pages() -> None:
    listed = re.findall(r"^([\w-]+)$", PAGES[ROOT / "docs" / "index.md"], re.MULTILINE)
    assert sorted(page.stem for page in PAGES if page.parent == ROOT / "docs") == sorted(["index", *listed])


def test_the_pages_say_how_many_kinds_of_requests_the_practice_model_knows() -> None:
    from ipyagent.practice.model.forms import FORMS

    assert set(re.findall(r"practice model knows (\d+) kinds", GUIDES)) == {str(len(FORMS))}


def test_the_readme_is_one_page() -> None:
    assert len(README.split()) <= 700


def test_no_text_says_that_mode_auto_asks_before_a_command_deletes_files_of_the_project() -> None:
    page = PAGES[ROOT / "docs" / "permissions.md"]
    first = next(line for line in page.split("\n") if line.startswith("| `auto`"))
    readme = next(line for line in README.split("\n") if line.startswith("- `auto`"))
    for said in (first, readme, str(IPyAgent.mode.help)):
        assert "before anything destructive" not in said
        assert "before Python code deletes something, reaches a new host or starts a program" in said
        assert "before what undo could not restore" in said


def test_every_file_that_is_named_is_there() -> None:
    for path in (found for found in inline() if found.startswith(("notebooks/", "ipyagent/", "tests/", "kernel/"))):
        assert (ROOT / path).exists() or (ROOT / "ipyagent" / path).exists(), path


def test_the_picture_of_the_tree_names_every_part() -> None:
    (picture,) = (text for kind, text in FENCE.findall(GUIDES) if not kind and text.startswith("ipyagent/"))
    for path in (ROOT / "ipyagent").iterdir():
        if path.name not in ("__pycache__", "py.typed") and (path.is_dir() or path.suffix == ".py"):
            assert path.name in picture, path.name


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Room]:
    with room(tmp_path_factory.mktemp("readme"), IPYAGENT_MODE="auto") as here:
        here.ok("%load_ext ipyagent")
        (here.folder / "orders.csv").write_text("customer,total\na,1\na,2\nb,\n")
        here.ok("import pandas as pd\norders = pd.read_csv('orders.csv')")
        here.ok("%%agent\nhow many missing values are in @orders?")
        yield here


def test_every_command_without_an_argument_runs_as_written(place: Room) -> None:
    tried = 0
    for found in sorted(dict.fromkeys(inline()), key=("%memory off", "%agent new").__contains__):
        if not found.startswith(("%agent", "%context", "%compact", "%memory", "%skills", "%config")):
            continue
        if PLACEHOLDER.search(found) or found in ELSEWHERE:
            continue
        cell = place.run(found, headless=found != "%agent cells")
        assert cell.errors == [], (found, cell.reply.get("traceback"))
        tried += 1
    assert tried >= 12


def test_the_python_examples_run(place: Room) -> None:
    examples = [text for kind, text in FENCE.findall(GUIDES) if kind == "python"]
    assert len(examples) >= 6
    (place.folder / "sales.csv").write_text("month,sales\njan,3\nfeb,5\n")
    (place.folder / "data").mkdir()
    (place.folder / "data" / "one.csv").write_text("date,n\n2026-01-02,1\n")
    place.ok("from pathlib import Path\nimport ipyagent\nrates = {'USD': 1.1}")
    for text in examples:
        if "Agent(settings" in text:  # a script of its own, on the practice model
            text = text.replace('mode="auto"', 'mode="auto", model="practice"')
            (place.folder / "script.py").write_text(text)
            place.ok("import subprocess, sys; print(subprocess.run([sys.executable, 'script.py'], text=True, "
                     "capture_output=True, check=True).stdout)", timeout=60)  # fmt: skip
        else:
            place.ok(text, timeout=60)
    assert place.ok("print(len(rows), rows[0]['status'])").streams.startswith("1 ")


def test_the_requests_of_the_examples_can_be_made(place: Room) -> None:
    cells = [text for kind, text in FENCE.findall(GUIDES) if not kind and text.startswith("%%agent")]
    assert cells
    for text in cells:
        place.ok(text.rstrip("\n"), timeout=60)


def test_every_file_and_call_that_is_shown_is_read_without_a_remark(
    place: Room, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each block of text, JSON or TOML by what reads it in earnest; what `ipyagent eval` prints is in its own tests."""
    monkeypatch.setenv("IPYAGENT_HOME", str(tmp_path))
    read = 0
    for kind, text in FENCE.findall(GUIDES):
        if kind not in ("text", "json", "toml"):
            continue
        file = tmp_path / "shown"
        file.write_text(text)
        if "mcpServers" in text:
            found = read_entries(file, "user", tmp_path)
            assert (len(found.found), found.problems) == (2, ())
            servers = {each.name: each.url or (each.command, *each.args) for each in found.found}
        elif text.startswith("%agent mcp add"):
            added = [parse_add(line.removeprefix("%agent mcp add")) for line in text.splitlines()]
            lines = {name: raw.get("url") or (raw["command"], *raw["args"]) for name, raw, _ in added}
        elif "pre_tool" in text:
            (tmp_path / "hooks.json").write_text(text)
            (hook,) = HooksFile(NAMES).of("pre_tool")
            assert hook.entry.timeout == 10
        elif '"question"' in text:
            (tmp_path / "titanic.csv").touch()
            assert [question.table.name for question in read_questions(file, tmp_path)] == ["titanic.csv"]
        elif text.startswith("# ~/.ipyagent/config.toml"):
            values, problem = read_settings(file)
            assert not problem
            assert set(values) <= set(setting_names())
        elif text.startswith("---"):
            (tmp_path / "agents").mkdir()
            file.rename(tmp_path / "agents" / "reviewer.md")
            types = defined([tmp_path / "agents"], ())
            assert (list(types.kinds), types.problems) == (["reviewer"], ())
        elif "ipyagent.tools" in text:
            assert tomllib.loads(text)["project"]["entry-points"]["ipyagent.tools"]["exchange_rate"]
        elif text.startswith("agent_map("):
            (call,) = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call))
            assert {each.arg for each in call.keywords} <= set(inspect.signature(agent_map).parameters)
        elif "teach.begin()" in text:
            with room(tmp_path, IPYAGENT_MODE="auto") as lesson:
                lesson.ok(text, timeout=60)
        else:
            assert text.startswith("bundled-practice-"), text
        read += 1
    assert lines == servers, "the commands of docs/mcp.md make the file that it shows"
    assert read == 10


SHELL = re.compile(r"(?:(?:pip|python|llama-server|vllm|ipyagent(?= [a-z])|pytest)\b|export [A-Z_]+=).*")
NOT_RUN = {
    "llama-server -m FILE.gguf --jinja": "another program; its server is tested through the extra `local`",
    "vllm serve NAME --enable-auto-tool-choice --tool-call-parser PARSER": "another program that needs a graphics card",
    "pip install '.[local]'": "in .ci/run",
    "pip install '.[documents]'": "from the package index; .ci/run installs the extra with `test`",
    "pip install '.[mcp]'": "from the package index; .ci/run installs the extra with `test`",
    "pip install 'ipykernel>=7.4'": "from the package index; both kernels are tried in .ci/run",
    "ipyagent practice": "in commands/test_doctor.py",
    "ipyagent doctor": "in commands/test_doctor.py",
    "ipyagent sessions": "below",
    "ipyagent dream --project DIR [--if-due]": "in commands/test_dream_command.py",
    "ipyagent eval": "in eval/test_eval.py",
    "ipyagent eval --model local:PATH.gguf": "in eval/test_eval.py",
    "ipyagent eval --model practice": "in eval/test_eval.py",
    "ipyagent eval QUESTIONS.jsonl --tables DIR --repeat 3 --jobs 2 --set layer_notes=off": "in eval/test_eval.py",
    "ipyagent replay FILE --layers … --window N": "in replay/test_replaying.py",
    "pip install '.[docs]' && sphinx-build -W docs site": "in .ci/run",
    "pytest -m slow": "in .ci/run",
    "python -m tests.bench servers": "two minutes; its cells are servers/test_servers.py",
    "python -m tests.sandbox [KIND]": "minutes long; its commands are sandbox/test_confinement.py",
    "python -m tests.sandbox judged": "three minutes; its commands are parts/shell/test_shell_cases.py",
    "pytest -m browser": "in .ci/run",
    "pytest -n 0 -m \"timed or paced\"": "in .ci/run",
    "python -m tests.bench": "measures, minutes long",
}
"""Commands of the shell that README names, and where each is run or why not."""


CI = {"pip install '.[demo]' && ipyagent demo", "pip install '.[test]' && pytest"}
"""The README's two, which .ci/run takes from there."""


def test_commands_of_the_shell_are_run_somewhere_or_told_why_not() -> None:
    named = {found for found in inline() if SHELL.fullmatch(found) and found != "python"}
    variables = {found for found in named if found.startswith("export ")}
    assert {found.split("=")[0] for found in variables} == {"export ANTHROPIC_API_KEY", "export ANTHROPIC_BASE_URL"}
    assert not any(found.endswith("/v1") for found in variables)
    fenced = {line for kind, text in FENCE.findall(GUIDES) if kind == "bash" for line in text.splitlines()}
    assert (named | fenced) - variables - CI == set(NOT_RUN)


def test_shell_commands_are_those_of_ci_or_run_here(tmp_path: Path) -> None:
    ci = (ROOT / ".ci" / "run").read_text("utf-8")
    commands = [line for kind, text in FENCE.findall(README) if kind == "bash" for line in text.splitlines()]
    assert commands == sorted(CI)
    for extra in ("demo", "test"):  # CI takes them from the README and runs them as they stand
        assert f'"$(readme {extra})"' in ci
    for option, begins in (("--version", "ipyagent "), ("sessions", "no stored sessions here")):
        shown = subprocess.run(
            [sys.executable, "-m", "ipyagent", option], cwd=tmp_path, capture_output=True, text=True, check=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )  # fmt: skip
        assert shown.stdout.startswith(begins)


def test_the_wheel_is_typed_and_brings_notebooks_and_skills() -> None:
    told = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert (ROOT / "ipyagent" / "py.typed").is_file()
    assert told["packages"] == ["ipyagent"]
    assert told["force-include"] == {"notebooks": "ipyagent/notebooks", "skills": "ipyagent/bundled_skills"}
    assert told["shared-data"] == {"ipyagent/labextension": "share/jupyter/labextensions/ipyagent"}
    companion = json.loads((ROOT / "ipyagent" / "labextension" / "package.json").read_text("utf-8"))
    assert companion["version"] == __version__
    try:
        files = {str(path) for path in metadata.files("ipyagent") or ()}
    except metadata.PackageNotFoundError:
        pytest.skip("ipyagent is not installed here, only on the path: its built wheel is looked at in CI")
    if "ipyagent/__init__.py" not in files:
        pytest.skip("installed in place: its built wheel is looked at in CI")
    assert "ipyagent/py.typed" in files
    for name in ("install.json", "package.json", "schemas/ipyagent/plugin.json", "static/remoteEntry.js"):
        assert any(path.endswith(f"share/jupyter/labextensions/ipyagent/{name}") for path in files), name
    assert {f"ipyagent/notebooks/{path.name}" for path in (ROOT / "notebooks").glob("*.ipynb")} <= files
    assert {f"ipyagent/bundled_skills/{path.parent.name}/SKILL.md" for path in ROOT.glob("skills/*/SKILL.md")} <= files


@pytest.mark.parametrize("path", sorted((ROOT / "notebooks").glob("*.ipynb")), ids=lambda path: path.stem)
def test_every_notebook_is_run_by_a_test(path: Path) -> None:
    nbformat.validate(nbformat.read(path, as_version=4))
    texts = [each.read_text("utf-8") for each in (ROOT / "tests").rglob("test_*.py") if each != Path(__file__)]
    assert any(path.name in text or path.stem in text for text in texts)
    assert path.name in GUIDES
