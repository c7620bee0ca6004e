"""Results of outside tools become blocks within the caps, whatever they hold."""

from __future__ import annotations

import base64
import io
from pathlib import Path
from typing import Any

import pytest

from ipyagent.journal.protocols import ToolOutput
from ipyagent.parts.mcp.tool import MOST_FILES, MOST_PARTS, MOST_PICTURES, ResultFiles, mended_png, output_of

types = pytest.importorskip("mcp_types")


def output(*content: dict[str, Any], folder: Path | None = None, limit: int = 5_000, **more: Any) -> ToolOutput:
    result = types.CallToolResult.model_validate({"content": list(content), **more})
    return output_of(result, limit, ResultFiles(folder, lambda path: path.name))


def said(made: ToolOutput) -> str:
    return str(made.blocks[0]["text"])


def png(size: tuple[int, int] = (4, 4)) -> bytes:
    from PIL import Image

    made = io.BytesIO()
    Image.new("RGB", size, "teal").save(made, "PNG", icc_profile=b"profile" * 9)
    return made.getvalue()


def image(data: bytes) -> dict[str, Any]:
    return {"type": "image", "data": base64.b64encode(data).decode(), "mimeType": "image/png"}


def test_a_structured_value_is_given_once() -> None:
    text = {"type": "text", "text": '{"a": 1}'}
    assert said(output(text, structuredContent={"a": 1})) == '{"a": 1}'
    assert said(output({"type": "text", "text": "plain"}, structuredContent={"content": "plain"})) == "plain"
    assert said(output({"type": "text", "text": "see"}, structuredContent={"a": 1})) == 'see\n{"a": 1}'
    made = output(structuredContent={"rows": [1, 2]})
    assert (made.live.value, made.live.alone) == ({"rows": [1, 2]}, True)


def test_pictures_are_scaled_counted_and_never_broken() -> None:
    made = output(image(png((3_000, 20))), image(b"no picture"), *[image(png())] * 20)
    shown = [block for block in made.blocks if block["type"] == "image"]
    assert len(shown) == MOST_PICTURES
    assert "not a picture that can be read" in said(made)
    assert "further picture" in said(made)


def test_a_picture_with_damaged_side_information_is_shown() -> None:
    sound = png()
    at = sound.index(b"iCCP") + 6
    damaged = sound[:at] + b"XXXX" + sound[at + 4 :]
    assert b"iCCP" not in mended_png(damaged)
    assert mended_png(sound) == sound
    assert len(output(image(damaged)).blocks) == 2
    for length in range(0, len(sound), 7):
        mended_png(sound[:length])


def test_text_and_parts_are_bounded_and_plain() -> None:
    assert said(output()) == "(no result)"
    assert said(output({"type": "text", "text": "a\x1b[31mb\x00c"})) == "ab\ufffdc"
    made = output(*[{"type": "text", "text": "x" * 1_000}] * (MOST_PARTS + 50), limit=5_000)
    assert len(said(made)) < 5_200
    assert "50 more parts" in said(made)


def test_files_are_kept_within_bounds_and_named(tmp_path: Path) -> None:
    sounds = [
        {"type": "audio", "data": base64.b64encode(bytes([n]) * 9).decode(), "mimeType": "audio/wav; x=y"}
        for n in range(MOST_FILES + 3)
    ]
    made = output(*sounds, {"type": "audio", "data": "%%%", "mimeType": "../../etc"}, folder=tmp_path / "kept")
    assert len(list((tmp_path / "kept").iterdir())) == MOST_FILES
    assert said(made).count("not kept") == 4
    assert all(path.suffix == ".wav" for path in (tmp_path / "kept").iterdir())
    assert "not kept" in said(output(sounds[0]))
