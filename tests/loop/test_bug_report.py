"""A report holds what helps and nothing that nobody else may see."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

from ipyagent.journal.protocols import Request
from ipyagent.loop.model_call import write_report

SECRET = "Q7f-not-like-any-known-kind-93"
ENVIRON = {"MY_SERVICE_TOKEN": SECRET, "HOME_PAGE": "plain words", "SHORT_KEY": "abc"}


def sent() -> Request:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "A" * 9_000}}
    thought = {"type": "thinking", "thinking": f"the token is {SECRET}", "signature": "s" * 400}
    call = {"type": "tool_use", "id": "t", "name": "python", "input": {"api_key": SECRET, "code": "1 + 1"}}
    said = {"type": "text", "text": "password=hunter2hunter2"}
    return Request(
        model="m",
        system=[{"type": "text", "text": "You are."}],
        tools=[{"name": "python", "input_schema": {"type": "object"}}],
        messages=[
            {"role": "user", "content": [image, {"type": "text", "text": "plain words"}]},
            {"role": "assistant", "content": [thought, call]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": [image, said]}]},
        ],
        max_tokens=5,
    )


def test_secrets_are_masked_and_pictures_shortened(tmp_path: Path) -> None:
    line = write_report(tmp_path, 7, f"refused with {SECRET}", sent(), ENVIRON)
    path = tmp_path / "bug-report-7.json"
    assert str(path) in line
    text = path.read_text(encoding="utf-8")
    assert SECRET not in text
    assert "hunter2hunter2" not in text
    assert len(text) < 4_000
    found = json.loads(text)
    messages = found["request"]["messages"]
    assert "[9,000 characters]" in messages[0]["content"][0]["source"]["data"]
    assert messages[0]["content"][1]["text"] == "plain words"
    assert messages[1]["content"][1]["input"]["code"] == "1 + 1"
    assert found["request"]["tools"][0]["name"] == "python"
    assert {"ipyagent", "python", "anthropic"} <= set(found["versions"])
    if os.name == "posix":
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_folder_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    line = write_report(tmp_path / "missing", 1, "x", None, {})
    assert "no bug report could be written" in line


def test_a_session_keeps_its_newest_reports_only(tmp_path: Path) -> None:
    (tmp_path / "bug-report-x.json").write_text("not ours")
    for number in (3, 20, 100, 7, 1_000, 9, 11):
        write_report(tmp_path, number, "again")
    kept = sorted(path.name for path in tmp_path.iterdir())
    assert kept == sorted([*(f"bug-report-{n}.json" for n in (1_000, 100, 20, 11, 9)), "bug-report-x.json"])
