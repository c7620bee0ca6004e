"""No secret of any kind, however it comes out, stands anywhere under `.ipyagent/` or in any request; and none is
destroyed."""

from __future__ import annotations

import base64
import gzip
import json
import random
import sys
import urllib.parse
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from compact_room import GOOD, CompactRoom, compact_room, plain
from mcp_room import odd
from notes_room import STATE, NotesRoom, directive_in, notes_room, path_in, words
from rooms import as_json, results

from ipyagent.context.notes_file import NOTES
from ipyagent.journal.events import Compacted, ModelChosen, Streamed
from ipyagent.journal.journal import TRANSCRIPT, read_events
from ipyagent.kernel import dispatcher
from ipyagent.loop.mailbox import MailMessage, received
from ipyagent.parts.shell import tool as shell_tool
from ipyagent.practice.replies import Reply, calls, text, tool
from ipyagent.redaction import redacted

TAIL = "Zq7XkV2m9TfLw4Rb8NcYh3Jd6Gs1Pu5E"
HEX = "9f8e7d6c5b4a39281706f5e4d3c2b1a0"
PEM = base64.encodebytes(random.Random(3).randbytes(600)).decode()

KINDS: dict[str, tuple[str, str]] = {
    "anthropic": (key := f"sk-ant-api03-{TAIL[::-1]}", key),
    "openai": (key := f"sk-proj-{TAIL}", key),
    "github": (key := f"ghp_{TAIL}abcd", key),
    "gitlab": (key := "glpat-" + TAIL[:20], key),
    "aws": (key := "AKIA" + "Q3EGRZ5TXB7PL2MN", key),
    "slack": (key := "xoxb-" + "123456789012-" + TAIL[:16], key),
    "google": (key := f"AIza{TAIL}abc", key),
    "stripe": (key := "sk_live_" + TAIL[:24], key),
    "hugging": (key := f"hf_{TAIL}", key),
    "groq": (key := f"gsk_{TAIL}", key),
    "xai": (key := f"xai-{TAIL}{TAIL}", key),
    "perplexity": (key := f"pplx-{TAIL}", key),
    "replicate": (key := f"r8_{TAIL}", key),
    "ocean": (key := f"dop_v1_{HEX}{HEX}", key),
    "vault": (key := f"hvs.{TAIL}", key),
    "grafana": (key := f"glsa_{TAIL}_1a2b3c4d", key),
    "jwt": (key := f"eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.{TAIL}", key),
    "telegram": (f"123456789:AA{TAIL}a", f"AA{TAIL}a"),
    "address": ("postgres://ann:hW7xQ2mZk9@db.example/sales", "hW7xQ2mZk9"),
    "bearer": (f"Authorization: Bearer {TAIL[5:]}x9", f"{TAIL[5:]}x9"),
    "assigned": ("db_password = 'jT5vN8rLq3'", "jT5vN8rLq3"),
    "private": (f"-----BEGIN RSA PRIVATE KEY-----\n{PEM}-----END RSA PRIVATE KEY-----", PEM.splitlines()[4]),
}
"""How each is printed, and what of that may stand nowhere."""
CELLS = ("tigerlily", "mK4zWq81xB", "Vb7Lq2XzP0dRt5Kw", "aB9tR4kWm2ZpQ8xV5nLc")
"""Passwords and keys of no known form, which only the name above or before them gives away."""


GITHUB = KINDS["github"][1]
MARK = "[secret: GitHub token, 40 characters]"
EVERYTHING = "\n".join(shown for shown, _ in KINDS.values())


def everything(room: CompactRoom | NotesRoom) -> Iterator[tuple[str, bytes]]:
    """Every file under `.ipyagent/` and every request, as it is and decompressed, and what was streamed in one."""
    for path in sorted((room.folder / ".ipyagent").rglob("*")):
        if path.is_file() and not path.is_symlink():
            data = path.read_bytes()
            yield str(path), data
            for unpack in (gzip.decompress, zlib.decompress):
                try:
                    yield f"{path}, unpacked", unpack(data)
                except (OSError, EOFError, zlib.error):
                    continue
    for path in (room.folder / ".ipyagent").rglob(TRANSCRIPT):
        said: dict[tuple[str, str], list[str]] = {}
        for event in read_events(path):
            if isinstance(event, Streamed):
                said.setdefault((event.channel, event.ref), []).append(event.text)
        yield from ((f"{path}, pieces of {key}", "".join(parts).encode()) for key, parts in said.items())
    seen: set[bytes] = set()
    for number, exchange in enumerate(room.server.messages):
        parts = [*exchange.body["messages"], {**exchange.body, "messages": []}]  # type: ignore[index]
        for part in (json.dumps(each, ensure_ascii=False).encode() for each in parts):
            if part not in seen:  # most of a request was sent before
                seen.add(part)
                yield f"request {number}", part


def found(room: CompactRoom | NotesRoom, needles: dict[str, str]) -> list[str]:
    """Where a needle stands, as it is or encoded."""
    left = []
    for where, data in everything(room):
        for name, needle in needles.items():
            raw = needle.encode()
            forms = (raw, raw[::-1], json.dumps(needle)[1:-1].encode(), raw.hex().encode())
            forms = (*forms, urllib.parse.quote(needle).encode())
            codes = [base64.b64encode(b"x" * shift + raw)[4:-4] for shift in range(3)]
            if any(form in data for form in (*forms, *codes)):
                left.append(f"{name} in {where}")
    return left


@pytest.fixture
def room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[CompactRoom]:
    """What is printed a character at a time is cut as often as at the usual pace, in a tenth of the time."""
    monkeypatch.setattr(dispatcher, "_BATCH", dispatcher._BATCH / 10)
    monkeypatch.setattr(shell_tool, "TICK", shell_tool.TICK / 10)
    with compact_room(tmp_path, any_model=True) as made:
        yield made


SLOWLY = """
import sys, time
def slowly(text, size, stream=sys.stdout):
    for at in range(0, len(text), size):
        stream.write(text[at:at + size]); stream.flush()
        time.sleep(0.0002 if size == 1 else 0.0012)
    stream.write('\\n')
"""
NEEDLES = {name: needle for name, (_, needle) in KINDS.items()}


def test_no_secret_that_is_printed_reaches_journal_or_model(room: CompactRoom, tmp_path: Path) -> None:
    agent = room.agent(subagents=True, messages=True)
    space = agent.shell.user_ns
    outside = tmp_path / "kinds.json"
    outside.write_text(json.dumps({name: shown for name, (shown, _) in KINDS.items()}))
    (room.folder / "settings.env").write_text(f"NAME=heron\n{EVERYTHING}\n")
    space["gh"] = EVERYTHING
    load = f"import json, io\nkinds = json.loads(open({str(outside)!r}).read())\nvalues = list(kinds.values())\n"
    in_shell = (
        f"{sys.executable} -c \"import json,sys,time\n"
        f"for text in json.load(open('{outside}')).values():\n"
        "    for c in text + chr(10):\n        sys.stdout.write(c); sys.stdout.flush(); time.sleep(0.0001)\""
    )
    answers = 0

    def answer(body: dict[str, Any]) -> Reply:
        nonlocal answers
        said = as_json(body["messages"])
        if "look for the fleet" in said:  # the sub-agent
            results = said.count('"tool_result"')
            if results == 0:
                code = "for each in values: slowly(each, 1)\nvalues"
                return tool("python", {"code": code}, say=f"I found {EVERYTHING}")
            if results == 1:
                return tool("send_message", {"to": "parent", "message": f"these: {EVERYTHING}"})
            return text(f"All of them:\n{EVERYTHING}")
        steps: list[Reply] = [
            tool("python", {"code": load + SLOWLY + "for each in values: print(each)"}),
            tool("python", {"code": "for each in values: slowly(each, 7)"}),
            tool("python", {"code": "for each in values: slowly(each, 1)"}),
            tool("python", {"code": "for each in values: slowly(each, 1, sys.stderr)"}),
            tool("python", {"code": "for name, value in kinds.items(): globals()['v_' + name] = value\nkinds"}),
            tool("python", {"code": "raise ValueError(' and '.join(values))"}),
            tool("python", {"code": "print('\\n'.join(values))\nprint('word ' * 30_000)\nvalues[::-1]"}),
            tool("python", {"code": "('\\n'.join(values) + '\\n') * 40"}),
            tool("python", {"code": "'\\n'.join(values).encode() * 90"}),
            tool("shell", {"command": in_shell}),
            tool("shell", {"command": "cat settings.env"}),
            tool("read_file", {"path": "settings.env"}),
            tool("grep", {"pattern": ".", "path": "settings.env"}),
            tool("python", {"code": f"kept = {EVERYTHING!r}"}),
            tool("variables", {}),
            *(tool("variables", {"name": f"v_{name}"}) for name in KINDS),
            tool("plan", {"steps": [{"step": f"use {KINDS[each][0]}", "state": "pending"} for each in ("jwt", "xai")]}),
            tool("memory", {"command": "create", "path": "/memories/project/a.md", "file_text": EVERYTHING}),
            tool("agent", {"task": "a search", "prompt": f"look for the fleet with {EVERYTHING}"}),
            text(f"I saw\n{EVERYTHING}"),
        ]  # fmt: skip
        answers += 1
        return steps[answers - 1] if answers <= len(steps) else text("ok")

    room.answer = answer
    assert agent.run_sync("show all, see @gh and @settings.env").status == "finished"
    assert space["kept"] == EVERYTHING, "what runs is what was written"
    assert sum("looks like a secret" in line for line in agent.notices) == 1
    assert {name: space["kinds"][name] for name in KINDS} == {name: shown for name, (shown, _) in KINDS.items()}
    assert found(room, NEEDLES) == []
    assert as_json(room.bodies[-1]).count("[secret: ") > 10 * len(KINDS)
    room.answer, room.replies = None, [text("next")]
    assert agent.run_sync("and now?").status == "finished"  # with the context of variables
    room.summary = text(f"<analysis>x</analysis>\n<summary>1. The keys are\n{EVERYTHING}</summary>")
    assert "compacted" in agent.compact()
    [compacted] = room.of(agent, Compacted)
    assert {"plan", "variables"} <= {each.split(" ")[0] for each in compacted.restored}
    assert agent.run_sync("go on").status == "finished"
    assert room.of(agent, ModelChosen)
    assert found(room, NEEDLES) == []
    room.replays(agent)


def test_no_secret_that_people_or_servers_wrote_for_the_prompt_reaches_journal_or_model(
    room: CompactRoom, tmp_path: Path
) -> None:
    home, marks = tmp_path / "home", ("PROJECT", "CLAUDE", "MINE", "SKILL", "TYPE", "SERVER", "REMEMBERED")
    files = {
        room.folder / "AGENTS.md": "PROJECT",
        room.folder / "CLAUDE.md": "CLAUDE",
        home / "AGENT.md": "MINE",
        home / "skills" / "loads" / "SKILL.md": "---\nname: loads\ndescription: loads sales with {0}\n---\nSKILL",
        home / "agents" / "looker.md": "---\nname: looker\ndescription: looks with {0}\n---\nTYPE",
        home / "memory" / "db.md": "---\nname: db\ndescription: the base {0}\ntype: reference\n---\nREMEMBERED",
        tmp_path / "server.txt": "SERVER",
    }
    for path, words_in_it in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{words_in_it.format(GITHUB)}\n{EVERYTHING}\n")
    (home / "memory" / "MEMORY.md").write_text(f"- [db](db.md) - the base, {GITHUB}\n")
    (home / "mcp.json").write_text(json.dumps({"mcpServers": {"odd": odd("told", str(tmp_path / "server.txt"))}}))
    agent = room.agent(subagents=True, skills=True, mcp_startup_timeout=20.0)

    def answer(body: dict[str, Any]) -> Reply:
        made = sum(message["role"] == "assistant" for message in body["messages"])
        if "look around" in as_json(body["messages"][0]) and "begin" not in as_json(body["messages"][0]):
            return text("looked")
        steps = [
            tool("load_skill", {"name": "loads"}),
            tool("agent", {"task": "look", "prompt": "look around", "type": "looker"}),
            tool("memory", {"command": "view", "path": "/memories/user/db.md"}),
        ]
        return steps[made] if made < len(steps) else text("done")

    room.answer = answer
    assert agent.run_sync("begin with the base db").status == "finished"
    room.answer = None
    assert room.turn(agent, "and go on with the base db", text("word " * 8_000)).status == "finished"
    assert "compacted" in agent.compact()
    assert room.turn(agent, "after a compaction").status == "finished"
    assert found(room, NEEDLES) == []
    sent = as_json(room.bodies)
    assert [mark for mark in marks if mark not in sent] == [], "all of it is sent, without its secrets"
    assert sent.count(MARK) > 2 * len(marks)
    heads = [body["system"] for body in room.bodies if "looked" not in as_json(body["system"])]
    assert heads[0] == heads[1], "what was sent stays as it was"
    room.nothing_refused()


TABLES: dict[str, str] = {
    "accounts.csv": "user,password,api_key\nann,{0},{2}\nbob,{1},{3}\n",
    "quoted.csv": '"id","user name","password","Set-Cookie"\n'
    '1,"Lee, Ann","{0}","sid={3}; Path=/"\n2,"B ""Bob""",{1},\n',
    "accounts.tsv": "user\tpassword\ttoken\nann\t{0}\t{2}\nbob\t{1}\t{3}\n",
    "semicolons.txt": "user;password;secret\nann;{0};{2}\nbob;{1};{3}\n",
    "wide.txt": "user      password     api_key\nann       {0}    {2}\nbob       {1}   {3}\n",
    "narrow.txt": "user password api_key\nann {1} {2}\nbob {1} {3}\n",
    "frame.txt": "    user    password                 secret\n0    ann   {0}       {2}\n1  bob l  {1}   {3}\n",
    "table.md": "| user | password | api_key |\n|------|:--------:|---|\n| ann | {0} | {2} |\n| bob | `{1}` | {3} |\n",
    "psql.txt": " user | password   \n------+------------\n ann  | {0}\n bob  | {1}\n(2 rows)\n",
    "polars.txt": "┌──────┬──────────┐\n│ user ┆ password │\n│ ---  ┆ ---      │\n│ str  ┆ str      │\n"
    "╞══════╪══════════╡\n│ ann  ┆ {0} │\n│ bob  ┆ {1} │\n└──────┴──────────┘\n",
    "records.json": '[{{"user": "ann", "password": "{0}", "api_key": "{2}"}},\n'
    ' {{"user": "bob", "password": "{1}", "token": "{3}"}}]\n',
    "series.txt": "user              ann\npassword    {1}\napi_key     {2}\nName: 0, dtype: object\n",
    "headers.txt": "HTTP/1.1 200 OK\nSet-Cookie: sid={3}; Path=/; HttpOnly\nCookie: a={2}\nDate: now\n",
}  # fmt: skip


def test_what_stands_below_a_secrets_name_reaches_neither_model_nor_journal(room: CompactRoom) -> None:
    agent = room.agent(max_turns=100, request_timeout=60.0)  # once an answer was lost and 600 s were waited for
    for name, table in TABLES.items():
        (room.folder / name).write_text(table.format(*CELLS))
    slow = "import time\nfor name in names:\n    for c in open(name).read():\n"
    slow += "        print(c, end='', flush=True); time.sleep(0.0001)"
    steps = [
        *(tool("read_file", {"path": name}) for name in TABLES),
        *(tool("shell", {"command": f"cat {name}"}) for name in TABLES),
        *(tool("shell", {"command": f"cat -n {name}"}) for name in TABLES),
        *(tool("grep", {"pattern": ".", "path": name}) for name in TABLES),
        tool("python", {"code": f"names = {list(TABLES)!r}\n{slow}"}),
        tool("python", {"code": "import pandas as pd\ndf = pd.read_csv('accounts.csv')\nprint(df.to_string())\ndf"}),
        tool("python", {"code": "print(df.to_markdown() if 0 else df.to_csv())\nprint(df.to_json(orient='records'))"}),
        tool("python", {"code": "rows = df.to_dict('records')\nprint(rows)\nrows"}),
        tool("variables", {"name": "df"}),
        tool("variables", {"name": "rows"}),
        text("done"),
    ]  # fmt: skip
    ended = room.turn(agent, "read @accounts.csv and @records.json", *steps)
    assert ended.status == "finished", ended
    room.summary = GOOD
    assert "compacted" in agent.compact()
    assert room.turn(agent, "go on", text("ok")).status == "finished"
    assert found(room, {cell: cell for cell in CELLS}) == []
    room.nothing_refused()


def test_the_setting_sends_results_as_they_are(room: CompactRoom) -> None:
    agent = room.agent(redact_secrets=False)
    (room.folder / "settings.env").write_text(f"GH={GITHUB}\n")
    room.turn(agent, "look", tool("read_file", {"path": "settings.env"}), text("done"))
    assert GITHUB in as_json(room.server.messages[-1].body)


def test_a_secret_is_never_overwritten_by_what_stands_for_it(room: CompactRoom) -> None:
    agent = room.agent()
    file = room.folder / "settings.env"
    file.write_text(f"NAME=heron\nGH={GITHUB}\nLAST=1\n")
    room.turn(
        agent,
        "change it",
        tool("read_file", {"path": "settings.env"}),
        tool("edit_file", {"path": "settings.env", "old": f"GH={MARK}\nLAST=1", "new": "LAST=2"}),
        tool("edit_file", {"path": "settings.env", "old": "NAME=heron", "new": f"NAME=heron\nOLD={MARK}"}),
        tool("write_file", {"path": "settings.env", "content": f"NAME=egret\nGH={MARK}\n"}),
        tool("edit_file", {"path": "settings.env", "old": "LAST=1", "new": "LAST=2"}),
        text("done"),
    )
    body = room.server.messages[-1].body
    answers = results(body)[1:]
    assert [bool(answer.get("is_error")) for answer in answers] == [True, True, True, False]
    for answer in answers[:3]:
        assert f"{MARK} only stands for a secret that you were not shown" in answer["text"]
    assert file.read_text() == f"NAME=heron\nGH={GITHUB}\nLAST=2\n"


def test_a_file_that_itself_holds_such_words_can_be_written(room: CompactRoom) -> None:
    agent = room.agent()
    file = room.folder / "test.py"
    file.write_text(f'SHOWN = "{MARK}"\n')
    room.turn(
        agent,
        "change it",
        tool("read_file", {"path": "test.py"}),
        tool("edit_file", {"path": "test.py", "old": "SHOWN", "new": f"# {MARK}\nOTHER"}),
        text("done"),
    )
    assert file.read_text() == f'# {MARK}\nOTHER = "{MARK}"\n'


def test_what_a_cut_off_call_had_shown_holds_no_secret(room: CompactRoom) -> None:
    agent = room.agent()
    agent.shell.user_ns["stop"], agent.shell.user_ns["gh"] = agent.stop, GITHUB
    room.turn(agent, "run", tool("python", {"code": "print('gh is', gh)\nstop()\nimport time\ntime.sleep(20)"}))
    room.turn(agent, "again", text("ok"))
    told = plain([block for message in room.server.messages[-1].body["messages"] for block in message["content"]])  # type: ignore[index]
    assert f"gh is {MARK}" in told


def test_another_agents_message_is_redacted_when_it_is_taken_in() -> None:
    letter = MailMessage(id="m1", sender="scout", session="s", text=f"use {GITHUB}", summary=f"key {GITHUB}")
    event = received(letter, lambda words: redacted(words)[0])
    assert GITHUB not in as_json([event.text, event.said, event.summary])
    assert f"use {MARK}" in event.text


def test_the_notes_and_the_way_to_them_hold_no_secret(tmp_path: Path) -> None:
    said = EVERYTHING

    def notes(body: dict[str, Any]) -> Reply:
        edit = {"path": path_in(body), "old": STATE, "new": f"{STATE}\n{said}"}
        return calls([("edit_file", {**edit, "old": f"not there {said}"}), ("edit_file", edit)], say=said)

    with notes_room(tmp_path) as room:
        room.update = notes
        agent = room.agent()
        room.turn(agent, "weigh " + words(1, 2_000), tool("python", {"code": "1 + 1"}), text("weighed"))
        assert sum(bool(directive_in(one.body)) for one in room.server.messages if one.body is not None) >= 2
        assert MARK in (agent.session.journal.folder / NOTES).read_text()
        assert found(room, NEEDLES) == []
