"""The session's notes as a document: fixed headings, a line under each that says what belongs there, text.

Headings and those lines come from the template and from nowhere else: whatever a model writes, only
the text under them is taken.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ipyagent.errors import AgentError, ToolFailure
from ipyagent.journal.protocols import ToolOutput
from ipyagent.journal.tokens import estimate_text
from ipyagent.nofollow import reading

NOTES = "notes.md"
EDITORS = ("edit_file", "write_file")
"""The tools that a fork may use on the notes."""
CUT = "[… cut: the section is full]"
NEARLY = 0.9
"""A section this full, as a share of its limit, is pointed out."""
STANDS = "[as above: {name}, lines {first}-{last}]"
"""A line in place of lines that stand in notes further up in the same prompt."""
LEAST_STANDING = 40
"""Estimated tokens of lines that are worth that line."""
_STANDS = re.compile(r"\[as above: (.+), lines (\d{1,9})-(\d{1,9})\]")
_ITALIC = re.compile(r"\s*([_*])\S.*\1\s*")
_FENCE = re.compile(r"\s*(```|~~~)")


class Section(NamedTuple):
    """`heading` with its "# ", `about` the italic line under it ("" for none), `text` what was noted."""

    heading: str
    about: str
    text: str = ""


class Notes(NamedTuple):
    """The sections in their order; a template is notes in which nothing was noted."""

    sections: tuple[Section, ...]

    @classmethod
    def template(cls, text: str) -> Notes:
        """A template's headings and lines. Raises AgentError when there is no heading."""
        lines = text.splitlines()
        found = [
            Section(line.rstrip(), lines[at + 1].strip() if _ITALIC.fullmatch("".join(lines[at + 1 : at + 2])) else "")
            for at, line in enumerate(lines)
            if line.startswith("# ")
        ]
        if not found:
            raise AgentError('the template of the session notes has no heading: add a line that begins with "# "')
        if len({section.heading for section in found}) < len(found):
            raise AgentError("the template of the session notes has the same heading twice: rename one")
        return cls(tuple(found))

    def __str__(self) -> str:
        parts = ("\n".join(filter(None, (each.heading, each.about, each.text))) for each in self.sections)
        return "\n\n".join(parts) + "\n"

    @property
    def noted(self) -> str:
        """What was noted, under its headings, without the lines that say what belongs where."""
        return "\n\n".join(f"{section.heading}\n{section.text}" for section in self.sections if section.text)

    @property
    def empty(self) -> bool:
        """Whether nothing was noted."""
        return not any(section.text for section in self.sections)

    def shown(self, above: Notes) -> str:
        """The notes as a model is told them that reads the notes `above` in the same prompt: lines that stand there
        are named, and what belongs into a section is said where nothing stands."""
        parts = []
        for section, before in zip(self.sections, above.sections, strict=True):
            name = section.heading.removeprefix("# ")
            text = "\n".join(_named(name, section.text.splitlines(), before.text.splitlines()))
            parts.append("\n".join(filter(None, (section.heading, text or section.about))))
        return "\n\n".join(parts) + "\n"

    def unfolded(self, text: str) -> str:
        """A text with the lines of these notes in place of those that name them. Raises ToolFailure for lines that
        are not there."""
        under = {section.heading.removeprefix("# "): section.text.splitlines() for section in self.sections}

        def lines(line: str) -> list[str]:
            if not (found := _STANDS.fullmatch(line.strip())):
                return [line]
            named = under.get(found[1], [])[int(found[2]) - 1 : int(found[3])] if int(found[2]) else []
            if not named or len(named) <= int(found[3]) - int(found[2]):
                raise ToolFailure(f"There are no such lines above: {line.strip()} Write them out. Nothing was changed.")
            return named

        return "\n".join(each for line in text.split("\n") for each in lines(line))

    def found_in(self, text: str) -> Notes:
        """The same headings with what stands under them in a file, however it came to be."""
        known = {section.heading for section in self.sections}
        under: dict[str, list[str]] = {}
        current: list[str] = []  # what stands above the first heading is nobody's
        for line in text.splitlines():
            heading = line.rstrip()
            if heading in known and heading not in under:
                current = under.setdefault(heading, [])
            else:
                current.append(heading)
        made = []
        for section in self.sections:
            lines = under.get(section.heading, [])
            if lines and section.about and _ITALIC.fullmatch(lines[0]):
                lines = lines[1:]  # the line that says what belongs here, as it is or changed
            lines = [line for line in lines if not section.about or line.strip() != section.about]
            made.append(section._replace(text="\n".join(lines).strip("\n")))
        return Notes(tuple(made))

    def revised(self, text: str) -> Notes:
        """The same, of what a model wrote. Raises ToolFailure when headings are missing, added,
        doubled or out of order; the lines under them are put right."""
        expected = [section.heading for section in self.sections]
        there = [line.rstrip() for line in text.splitlines() if line.rstrip() in expected]
        if there != expected:
            missing = [heading for heading in expected if heading not in there]
            what = f"{', '.join(missing)} would be missing" if missing else "they would be doubled or out of order"
            raise ToolFailure(f"The headings of the notes stay as they are, in order: {what}. Nothing was changed.")
        added = [line for line in _headings(text) if line not in expected]
        if added:
            raise ToolFailure(
                f"The notes have fixed sections; {added[0]!r} would be a new one. Write below the headings there are, "
                'with "## " or bold for parts. Nothing was changed.'
            )
        return self.found_in(text)

    def limited(self, section_tokens: int, tokens: int) -> Notes:
        """Notes within the limits: a longer section keeps its beginning, the last, which is a log, its end."""
        cap, made = section_tokens, self._capped(section_tokens)
        while estimate_text(str(made)) > tokens and cap > 20:
            cap = cap * 9 // 10
            made = self._capped(cap)
        return made

    def full(self, section_tokens: int) -> list[tuple[str, int]]:
        """The sections that reach their limit or nearly so, with their tokens."""
        sizes = ((section.heading.removeprefix("# "), estimate_text(section.text)) for section in self.sections)
        return [(name, size) for name, size in sizes if size > NEARLY * section_tokens]

    def _capped(self, cap: int) -> Notes:
        last = len(self.sections) - 1
        return Notes(
            tuple(
                section._replace(text=_shortened(section.text, cap, newest=at == last))
                for at, section in enumerate(self.sections)
            )
        )


class NotesToolPolicy:
    """The one file that a fork may write, as it sees it; nothing is on the disk before the end.

    `paths` are the spellings under which the file may be named, `above` the notes that the fork's prompt holds
    already.
    """

    def __init__(
        self, notes: Notes, paths: tuple[str, ...], *, section_tokens: int, above: Notes | None = None
    ) -> None:
        self.notes = notes
        self._above = above or notes.found_in("")
        self.edits = 0
        """Edits that were taken."""
        self._paths = paths
        self._section_tokens = section_tokens
        self._refused = False

    @property
    def shown(self) -> str:
        """The notes as the fork is told them."""
        return self.notes.shown(self._above)

    def permit(self, name: str, given: dict[str, Any]) -> str:
        """Why a call may not run; "" when it may."""
        if name not in EDITORS:
            return f"only {' and '.join(EDITORS)} on {self._paths[0]} may be used"
        if given.get("path") not in self._paths:
            return f"only {self._paths[0]} may be written, not {given.get('path')!r}"
        return ""

    def answer(self, name: str, given: dict[str, Any]) -> ToolOutput:
        """Do a permitted call on the notes. Raises ToolFailure."""
        try:
            edited = self._edited(given) if name == "edit_file" else self._above.unfolded(str(given["content"]))
            self.notes = self.notes.revised(edited)
        except ToolFailure:
            self._refused = True
            raise
        self.edits += 1
        long = [f"{name} ({size:,} tokens)" for name, size in self._long()]
        more = f"; over {self._section_tokens:,} tokens, shorten it: {', '.join(long)}" if long else ""
        return ToolOutput(blocks=({"type": "text", "text": f"edited {self._paths[0]}{more}"},))

    def enough(self) -> bool:
        """Whether the last round of calls left nothing to mend."""
        done = self.edits > 0 and not self._refused and not self._long()
        self._refused = False
        return done

    def _long(self) -> list[tuple[str, int]]:
        return [(name, size) for name, size in self.notes.full(self._section_tokens) if size > self._section_tokens]

    def _edited(self, given: dict[str, Any]) -> str:
        old, new = (self._above.unfolded(str(given[part])) for part in ("old", "new"))
        text = self.notes.shown(self.notes.found_in(""))  # without the lines that a filled section was not shown with
        count = text.count(old) if old else 0
        if not count:
            text = str(self.notes)
            count = text.count(old) if old else 0
        if count == 0:
            raise ToolFailure("`old` is not in the notes as they are now; they say:\n" + text)
        if count > 1 and not given.get("replace_all"):
            raise ToolFailure(f"`old` is in the notes {count} times: add lines around it")
        return text.replace(old, new)


def read_notes(path: Path) -> str | None:
    """The file's text; None when there is none. Raises AgentError when it cannot be read."""
    try:
        with reading(path) as file:
            return file.read().decode("utf-8", "replace").replace("\r\n", "\n")
    except FileNotFoundError:
        return None
    except OSError as problem:
        raise AgentError(f"cannot read {path} ({problem.strerror or problem}): fix its permissions") from None


def _named(name: str, lines: Sequence[str], above: Sequence[str]) -> Iterator[str]:
    """The lines of a section; runs of them that stand `above`, as the line that names them."""
    places: dict[str, int] = {}
    for place, line in enumerate(above):
        places.setdefault(line, place)
    at = 0
    while at < len(lines):
        first = places.get(lines[at], len(above))
        most = min(len(lines) - at, len(above) - first)
        count = next((n for n in range(most) if lines[at + n] != above[first + n]), most)
        run = lines[at : at + max(1, count)]
        at += len(run)
        if count and estimate_text("\n".join(run)) >= LEAST_STANDING:
            yield STANDS.format(name=name, first=first + 1, last=first + count)
        else:
            yield from run


def _headings(text: str) -> Iterator[str]:
    """Lines that are headings of the first rank, not those in fenced code."""
    fenced = False
    for line in text.splitlines():
        if _FENCE.match(line):
            fenced = not fenced
        elif line.startswith("# ") and not fenced:
            yield line.rstrip()


def _shortened(text: str, tokens: int, *, newest: bool) -> str:
    """Whole lines of the text in at most `tokens` tokens, from its end or its beginning, and the cut said."""
    if estimate_text(text) <= tokens:
        return text
    lines = [line for line in text.splitlines() if line != CUT]
    room = tokens - estimate_text(CUT) - 2
    kept: list[str] = []
    for line in reversed(lines) if newest else lines:
        cost = estimate_text(line) + 1
        if cost > room:
            piece = line if not kept else ""  # one line alone is too long
            while estimate_text(piece) > room:
                keep = len(piece) * 19 // 20
                piece = piece[len(piece) - keep :] if newest else piece[:keep]
            if piece:
                kept.append(piece)
            break
        room -= cost
        kept.append(line)
    return "\n".join([CUT, *reversed(kept)] if newest else [*kept, CUT])
