"""Bytes to text and back without loss: what was read in one encoding, with one kind of line end
and a byte order mark, is written back the same way."""

from __future__ import annotations

import codecs
from dataclasses import dataclass

from ipyagent.errors import ToolFailure

_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),  # begins like UTF-16's, so it is tried first
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


@dataclass(frozen=True)
class Decoded:
    """`text` keeps its line ends; `mark` is the byte order mark (b"" when there is none)."""

    text: str
    encoding: str = "utf-8"
    mark: bytes = b""

    @property
    def newline(self) -> str:
        """ "\\r\\n" or "\\r" when every line ends so, else "\\n"."""
        ends = self.text.count("\n")
        if not ends and "\r" in self.text:
            return "\r"
        return "\r\n" if ends and self.text.count("\r\n") == ends else "\n"

    def encode(self, text: str) -> bytes:
        """`text` as this file's bytes. Raises ToolFailure for a character it cannot hold."""
        try:
            return self.mark + text.encode(self.encoding)
        except UnicodeEncodeError as problem:
            raise ToolFailure(
                f"the file is {self.encoding} and cannot hold {text[problem.start]!r}; write it without, or "
                "convert the file with python first"
            ) from None


def decode(data: bytes, *, whole: bool = True) -> Decoded | None:
    """The text of `data`, None when it is binary. `whole` False: the end may be cut inside a
    character, which is then left out. Anything that is not UTF-8 and has no mark is latin-1."""
    for mark, encoding in _MARKS:
        if data.startswith(mark):
            try:
                text = codecs.getincrementaldecoder(encoding)().decode(data[len(mark) :], whole)
            except UnicodeDecodeError:
                break
            return Decoded(text, encoding, mark)
    if b"\x00" in data[:65_536]:
        return None
    try:
        return Decoded(codecs.getincrementaldecoder("utf-8")().decode(data, whole))
    except UnicodeDecodeError:
        controls = sum(byte < 32 and byte not in b"\t\n\r\f\x1b" for byte in data[:8_192])
        return None if controls > len(data[:8_192]) // 50 else Decoded(data.decode("latin-1"), "latin-1")
