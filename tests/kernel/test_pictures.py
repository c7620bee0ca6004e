"""Pictures are let in only at a size that no request is refused for."""

from __future__ import annotations

import base64
import io
import os

import PIL.Image
import pytest

from ipyagent.kernel.displays import LONG_EDGE, MAX_BYTES, fit_picture


def encode(picture: PIL.Image.Image, kind: str = "PNG") -> bytes:
    out = io.BytesIO()
    picture.save(out, kind)
    return out.getvalue()


def test_a_small_picture_is_kept_as_it_is() -> None:
    data = encode(PIL.Image.new("RGB", (100, 50)))
    for given in (data, base64.b64encode(data).decode()):
        got = fit_picture("image/png", given)
        assert got.data == data


@pytest.mark.parametrize(("size", "kind"), [((9_000, 90), "PNG"), ((1_600, 3_200), "JPEG"), ((90, 4_000), "PNG")])
def test_a_large_picture_is_scaled_down(size: tuple[int, int], kind: str) -> None:
    got = fit_picture(f"image/{kind.lower()}", encode(PIL.Image.new("RGB", size), kind))
    assert got.media_type == "image/png"
    assert max(PIL.Image.open(io.BytesIO(got.data)).size) == LONG_EDGE


def test_noise_of_many_bytes_is_made_small_enough() -> None:
    noise = PIL.Image.frombytes("RGB", (1_500, 1_500), os.urandom(1_500 * 1_500 * 3))
    data = encode(noise)
    assert len(data) > MAX_BYTES
    got = fit_picture("image/png", data)
    assert len(got.data) <= MAX_BYTES


@pytest.mark.parametrize("data", [b"", b"not a picture", "no base64!", b"\x89PNG\r\n\x1a\n" + b"\xff" * 40])
def test_what_is_no_picture_is_left_out(data: bytes | str) -> None:
    assert fit_picture("image/png", data) is None
