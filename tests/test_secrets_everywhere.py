"""No secret of any kind, however it comes out, stands anywhere under `.ipyagent/` or in any request."""

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
from compact_room import GOOD, CompactRoom, compact_room
from rooms import as_json

from ipyagent.assembly.compacting import run_compact
from ipyagent.journal.events import Compacted, ModelChosen
from ipyagent.practice.replies import Reply, text, tool

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


def everything(room: CompactRoom) -> Iterator[tuple[str, bytes]]:
    """Every file under `.ipyagent/` and every request, as it is and decompressed."""
    for path in sorted((room.folder / ".ipyagent").rglob("*")):
        if path.is_file() and not path.is_symlink():
            data = path.read_bytes()
            yield str(path), data
            for unpack in (gzip.decompress, zlib.decompress):
                try:
                    yield f"{path}, unpacked", unpack(data)
                except (OSError, EOFError, zlib.error):
                    continue
    for number, exchange in enumerate(room.server.messages):
        yield f"request {number}", json.dumps(exchange.body, ensure_ascii=False).encode()


def found(room: CompactRoom, needles: dict[str, str]) -> list[str]:
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
def room(tmp_path: Path) -> Iterator[CompactRoom]:
    with compact_room(tmp_path, any_model=True) as made:
        yield made


SLOWLY = """
import sys, time
def slowly(text, size, stream=sys.stdout):
    for at in range(0, len(text), size):
        stream.write(text[at:at + size]); stream.flush()
        time.sleep(0.002 if size == 1 else 0.012)
    stream.write('\\n')
"""
NEEDLES = {name: needle for name, (_, needle) in KINDS.items()}


def test_no_secret_that_is_printed_reaches_journal_or_model(room: CompactRoom, tmp_path: Path) -> None:
    agent = room.agent(children=True, messages=True)
    space = agent.shell.user_ns
    outside = tmp_path / "kinds.json"
    outside.write_text(json.dumps({name: shown for name, (shown, _) in KINDS.items()}))
    load = f"import json, io\nkinds = json.loads(open({str(outside)!r}).read())\nvalues = list(kinds.values())\n"
    in_shell = (
        f"{sys.executable} -c \"import json,sys,time\n"
        f"for text in json.load(open('{outside}')).values():\n"
        "    for c in text + chr(10):\n        sys.stdout.write(c); sys.stdout.flush(); time.sleep(0.001)\""
    )
    everything_said = "\n".join(shown for shown, _ in KINDS.values())
    answers = 0

    def answer(body: dict[str, Any]) -> Reply:
        nonlocal answers
        said = as_json(body["messages"])
        if "look for the fleet" in said:  # the sub-agent
            results = said.count('"tool_result"')
            if results == 0:
                code = "for each in values: slowly(each, 1)\nvalues"
                return tool("python", {"code": code}, say=f"I found {everything_said}")
            if results == 1:
                return tool("send_message", {"to": "parent", "message": f"these: {everything_said}"})
            return text(f"All of them:\n{everything_said}")
        steps: list[Reply] = [
            tool("python", {"code": load + SLOWLY + "for each in values: print(each)"}),
            tool("python", {"code": "for each in values: slowly(each, 7)"}),
            tool("python", {"code": "for each in values: slowly(each, 1)"}),
            tool("python", {"code": "for each in values: slowly(each, 1, sys.stderr)"}),
            tool("python", {"code": "for name, value in kinds.items(): globals()['v_' + name] = value\nkinds"}),
            tool("python", {"code": "raise ValueError(' and '.join(values))"}),
            tool("python", {"code": "print('\\n'.join(values))\nprint('word ' * 30_000)\nvalues[::-1]"}),
            tool("python", {"code": "('\\n'.join(values) + '\\n') * 40"}),
            tool("python", {"code": "'\\n'.join(values).encode() * 900"}),
            tool("shell", {"command": in_shell}),
            tool("variables", {}),
            *(tool("variables", {"name": f"v_{name}"}) for name in KINDS),
            tool("plan", {"steps": [{"step": f"use {KINDS[each][0]}", "state": "pending"} for each in ("jwt", "xai")]}),
            tool("memory", {"command": "create", "path": "/memories/project/a.md", "file_text": everything_said}),
            tool("agent", {"task": "a search", "prompt": f"look for the fleet with {everything_said}"}),
            text(f"I saw\n{everything_said}"),
        ]  # fmt: skip
        answers += 1
        return steps[answers - 1] if answers <= len(steps) else text("ok")

    room.answer = answer
    assert agent.run_sync("show all").status == "finished"
    assert {name: space["kinds"][name] for name in KINDS} == {name: shown for name, (shown, _) in KINDS.items()}
    assert found(room, NEEDLES) == []
    assert as_json(room.bodies[-1]).count("[secret: ") > 10 * len(KINDS)
    room.answer, room.replies = None, [text("next")]
    assert agent.run_sync("and now?").status == "finished"  # with the context of variables
    room.summary = GOOD
    assert "compacted" in run_compact(agent, "")
    [compacted] = room.of(agent, Compacted)
    assert {"plan", "variables"} <= {each.split(" ")[0] for each in compacted.restored}
    assert agent.run_sync("go on").status == "finished"
    assert room.of(agent, ModelChosen)
    assert found(room, NEEDLES) == []
    room.replays(agent)


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
    agent = room.agent(max_turns=100)
    for name, table in TABLES.items():
        (room.folder / name).write_text(table.format(*CELLS))
    slow = "import time\nfor name in names:\n    for c in open(name).read():\n"
    slow += "        print(c, end='', flush=True); time.sleep(0.001)"
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
    assert room.turn(agent, "read @accounts.csv and @records.json", *steps).status == "finished"
    room.summary = GOOD
    assert "compacted" in run_compact(agent, "")
    assert room.turn(agent, "go on", text("ok")).status == "finished"
    assert found(room, {cell: cell for cell in CELLS}) == []
    room.nothing_refused()
