"""Headers: whatever a file holds, it is read as far as it goes, what is wrong is told, and nothing is executed."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from ipyagent.frontmatter import _quick, read_headed, write_headed
from ipyagent.parts.memory.store import MemoryStore

GOOD = b"---\nname: Ports\ndescription: The service listens on 8080\ntype: project\n---\n\nBody\n"
BOMB = b"---\na: &a [x, x, x, x, x, x, x, x, x, x]\n" + b"".join(
    b"%c: &%c [%s]\n" % (key, key, b", ".join([b"*%c" % (key - 1)] * 10)) for key in b"bcdefghi"
)
CASES: dict[str, tuple[bytes, dict[str, Any], str]] = {
    "byte order mark": (b"\xef\xbb\xbf" + GOOD, {"name": "Ports", "type": "project"}, "byte order mark"),
    "CRLF": (GOOD.replace(b"\n", b"\r\n"), {"name": "Ports", "type": "project"}, "Windows line ends"),
    "old Mac": (GOOD.replace(b"\n", b"\r"), {"name": "Ports", "type": "project"}, "line ends"),
    "tab": (b"---\nname:\tPorts\n\ttype: x\n---\n", {"name": "Ports\ntype: x"}, "line 2: a tab"),
    "duplicate key": (
        b"---\nname: A\ntype: user\nname: B\n---\n",
        {"name": "B", "type": "user"},
        "line 4: 'name' is there twice",
    ),
    "colon": (
        b"---\nname: A\ndescription: note: this\n---\n",
        {"name": "A", "description": "note: this"},
        "line 3: an unquoted",
    ),
    "signs": (
        b"---\nname: @x\ndescription: `y` %z\n---\n",
        {"name": "@x", "description": "`y` %z"},
        "line 2: not YAML",
    ),
    "bomb": (BOMB + b"---\nBody\n", {}, "stands for more than 2,000 values"),
    "self alias": (b"---\na: &a [*a]\n---\n", {}, "levels deep"),
    "alias of nothing": (b"---\na: *b\nc: d\n---\n", {"a": "*b", "c": "d"}, "line 2: not YAML"),
    "python object": (
        b'---\nname: !!python/object/apply:os.system ["touch pwned"]\n---\n',
        {"name": ["touch pwned"]},
        "the tag !!python/object/apply:os.system is not followed",
    ),
    "python name": (b"---\nname: !!python/name:os.system x\n---\n", {"name": "x"}, "is not followed"),
    "own tag": (b"---\nname: !secret x\n---\n", {"name": "x"}, "the tag !secret is not followed"),
    "deep": (b"---\na: " + b"[" * 30 + b"]" * 30 + b"\n---\n", {}, "levels deep"),
    "very deep": (b"---\na: " + b"[" * 50_000 + b"\n---\n", {"a": "[" * 50_000}, "line 2: not YAML"),
    "very deep block": (b"---\n" + b"- " * 20_000 + b"x\n---\n", {}, "levels deep"),
    "no frontmatter": (b"Just text\n", {}, "no frontmatter"),
    "empty": (b"", {}, "no frontmatter"),
    "late header": (b"\n\n" + GOOD, {"name": "Ports"}, "line 3: the frontmatter should begin on the first line"),
    "never closed": (b"---\nname: A\n\nBody\n", {}, "no closing"),
    "list": (b"---\n- a\n- b\n---\n", {}, "not a list of `key: value` lines"),
    "scalar": (b"---\nwords\n---\n", {}, "not a list of `key: value` lines"),
    "half a list": (b"---\nwords\nname: A: b\n---\n", {"name": "A: b"}, "line 2: no `key: value`"),
    "two documents": (b"---\nname: A\n--- x\nname: B\n---\n", {"name": "A"}, "line 3: a second YAML document"),
    "Latin-1": (b"---\nname: caf\xe9\n---\n", {"name": "caf\ufffd"}, "line 2: not UTF-8 (byte 0xe9)"),
    "UTF-16": (GOOD.decode().encode("utf-16"), {"name": "Ports"}, "UTF-16"),
    "NUL": (b"---\nname: A\0B\n---\n", {"name": "A\0B"}, "line 2: not YAML"),
    "binary": (bytes(range(256)) * 4, {}, "not UTF-8"),
    "surrogate": (b'---\nname: "\\ud800"\n---\n', {"name": '"\\ud800"'}, "line 2: not YAML"),
    "long": (b"---\nname: " + b"x" * 100_000 + b"\n---\nBody\n", {}, "is not read"),
    "merge key": (b"---\na: &a {b: c}\n<<: *a\n---\n", {"a": {"b": "c"}, "<<": {"b": "c"}}, ""),
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_wrong_is_told_and_the_rest_is_read(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    data, fields, problem = CASES[case]
    started = time.thread_time()
    headed = read_headed(data)
    assert time.thread_time() - started < 1
    assert {key: headed.fields[key] for key in fields} == fields
    assert fields or not headed.fields
    assert problem in "\n".join(headed.problems)
    assert all(told and len(told) < 300 and "\n" not in told for told in headed.problems)
    assert os.listdir(tmp_path) == []


def test_a_memory_with_any_header_is_listed_with_a_diagnostic(tmp_path: Path) -> None:
    for at, case in enumerate(CASES):
        here = tmp_path / str(at)
        here.mkdir()
        store = MemoryStore(here / "memory", "project")
        store.folder.mkdir()
        (store.folder / "odd.md").write_bytes(CASES[case][0])
        (memory,) = store.list()
        assert memory.name == "odd.md", case
        assert memory.problems or not CASES[case][2]
        assert any(finding.name == "odd.md" for finding in store.index.doctor()), case
        store.index.mend()
        assert len(store.list()) == 1, case
        assert [finding for finding in store.index.doctor() if finding.mendable] == [], case
        assert store.delete("odd.md", by="user").change == "deleted", case


def test_ten_megabytes_are_listed_from_their_head(tmp_path: Path) -> None:
    store = MemoryStore(tmp_path / "memory", "project")
    store.folder.mkdir()
    (store.folder / "big.md").write_bytes(GOOD + b"x" * 10_000_000)
    (store.folder / "line.md").write_bytes(b"y" * 10_000_000)
    started = time.thread_time()
    memories = {memory.name: memory for memory in store.list()}
    assert time.thread_time() - started < 0.2
    assert memories["big.md"].title == "Ports"
    assert any("10,000,0" in problem for problem in memories["big.md"].problems)
    assert memories["line.md"].title == "line"
    assert len(store.read("big.md").text) > 10_000_000
    store.index.mend()
    assert (store.folder / "line.md").stat().st_size == 10_000_000


def test_a_header_longer_than_thirty_lines_is_told_and_an_unknown_type_is_none(tmp_path: Path) -> None:
    store = MemoryStore(tmp_path / "memory", "project")
    store.folder.mkdir()
    (store.folder / "a.md").write_text("---\n" + "".join(f"k{n}: v\n" for n in range(40)) + "---\n")
    (memory,) = store.list()
    assert "in the first 30 lines" in memory.problems[0]
    for number, kind in enumerate(("insight", "USER", "[user, x]", "3", "true", "''")):
        written = store.write(f"b{number}.md", f"---\nname: A\ntype: {kind}\n---\n", expected=None, by="agent")
        assert written.memory.kind == "", kind


def test_rules_in_the_body_are_of_the_body() -> None:
    headed = read_headed(b"---\nname: A\n---\nOne\n---\nTwo\n---\n")
    assert (headed.fields, headed.body, headed.problems) == ({"name": "A"}, "One\n---\nTwo\n---\n", ())
    assert read_headed(b"---\nname: A\n...\nBody\n").body == "Body\n"
    assert read_headed(b"---\n---\nBody\n") == read_headed(write_headed({}, "Body\n").encode()).__class__({}, "Body\n")


def test_values_stay_what_was_written() -> None:
    text = b"---\na: 2026-12-03\nb: no\nc: 12:30\nd: 007\ne: 3\nf: 2.5\ng: true\nh: ~\ni: 1_000\nj: 0x1f\n---\n"
    assert read_headed(text).fields == {
        "a": "2026-12-03", "b": "no", "c": "12:30", "d": "007", "e": 3, "f": 2.5, "g": True, "h": None,
        "i": "1_000", "j": "0x1f",
    }  # fmt: skip


def test_unknown_keys_and_their_order_are_kept_and_a_value_that_stands_twice_is_written_twice() -> None:
    fields = {"zeta": [1, {"deep": "x"}], "name": "A: b", "when": "2026-12-03", "flag": "no", "text": "two\nlines"}
    text = write_headed(fields, "\nBody\n")
    again = read_headed(text.encode())
    assert (again.fields, list(again.fields), again.body, again.problems) == (fields, list(fields), "\nBody\n", ())
    shared = ["x"]
    assert "&" not in write_headed({"a": shared, "b": shared}, "")


_TEXT = st.text(st.characters(blacklist_categories=("Cs",)), max_size=40)
_VALUE = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**15), 10**15) | _TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXT, inner, max_size=3),
    max_leaves=6,
)


@given(st.dictionaries(_TEXT, _VALUE, max_size=5), _TEXT)
@example({"a": "\x85"}, "")
@example({}, "---\nx")
@example({"": ""}, "")
def test_what_is_written_is_read_back(fields: dict[str, Any], body: str) -> None:
    headed = read_headed(write_headed(fields, body).encode())
    if fields:
        assert headed.fields == fields
    assert headed.body == body.replace("\r\n", "\n").replace("\r", "\n")


_ODD = st.from_regex(rb"---\n([a-c]: [ -~&*!\[\]{}\n:#'\"\t]{0,12}\n){0,4}---\n", fullmatch=True)


@given(st.binary(max_size=300) | _ODD)
def test_no_bytes_raise(data: bytes) -> None:
    for part in (False, True):
        headed = read_headed(data, part=part)
        assert isinstance(headed.fields, dict)
        write_headed(headed.fields, headed.body)


_LINE = st.from_regex(r"[a-z]{1,3}: ?[\w :#'\"\\,.\-~!&*\[\]{}%@`|>?é日]{0,20}", fullmatch=True)


@given(st.lists(_LINE, min_size=1, max_size=3))
@example(["a: b #c"])
@example(["a: b#c:d"])
@example(["a: x:"])
@example(["a: Null"])
@example(["a: 'it''s'"])
def test_the_quick_way_reads_what_yaml_reads(lines: list[str]) -> None:
    quick = _quick(lines)
    if quick is not None:
        assert yaml.safe_load("\n".join(lines)) == quick


def test_loading_the_extension_imports_no_yaml_and_no_stemmers(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom IPython.core.interactiveshell import InteractiveShell\n"
        "InteractiveShell.instance().run_line_magic('load_ext', 'ipyagent')\n"
        "print(sorted({'yaml', 'frontmatter', 'snowballstemmer', 'toml'} & set(sys.modules)))"
    )
    environ = {**os.environ, "IPYTHONDIR": str(tmp_path), "HOME": str(tmp_path)}
    made = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environ, timeout=60)
    assert made.stdout.strip().splitlines()[-1] == "[]", made.stderr
