"""Session notes: kept up to date in the background, and the summary when the window is full, for free.

Notes are written by a fork that may touch the one file `notes.md` beside the transcript. What
`NotesWritten` says they cover is all they count for: what came later is kept verbatim.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from pathlib import Path

import msgspec

from ipyagent.context.boundary import Range, file_stands, newest_picture, room_to_say, said_in
from ipyagent.context.notes_file import NOTES, STANDS, Notes, NotesToolPolicy, read_notes
from ipyagent.context.reminders import is_context, told_in, without_told
from ipyagent.context.removed_content import left_ranges
from ipyagent.context.store_results import text_of
from ipyagent.context.thresholds import LOW_SHARE, near_threshold, notes_limit
from ipyagent.errors import AgentError
from ipyagent.journal.blocks import THINKING, text_block
from ipyagent.journal.events import Block, Compacted, Event, LayerDecision, NotesWritten
from ipyagent.journal.protocols import ForkOrder, LayerContext, Moment
from ipyagent.journal.tokens import estimate_block, estimate_text
from ipyagent.nofollow import reading, write_atomically
from ipyagent.project import Project, user_folder

OWN, OWN_FILES = "notes", ("template.md", "prompt.md")
"""Folder in `.ipyagent/` whose files of these names take the place of ours."""
MOST_OWN_BYTES = 64_000
FORK_TURNS = 4
FORK_TOKENS = 16_000
"""Largest reply of the fork: all sections at their limit, written whole."""
HEAD = (
    "The conversation before this point left the context window. These are the notes that were kept during it "
    "(whole in `{path}`); what follows of the conversation is verbatim."
)
BESIDE = (
    "Notes that were kept during the conversation (whole in `{path}`); where they differ, follow the "
    "summary: it is newer.\n<notes>\n{notes}\n</notes>"
)
STANDING = (HEAD.partition("{")[0], BESIDE.partition("{")[0])
ABOVE = "(A line “[as above: …]” stands for those lines of the notes further up, also in what you write.)"
BESIDE_TOKENS = 60
"""Estimated tokens of the words around them."""
OPEN = " Go on from here without asking."
TOOK_PLACE = "took the place of {gone:,} of {before:,} tokens of the prompt: {why}"
NOTHING_NEW = "the update left the notes as they were; a later turn tries again"
WHY = {
    "manual": "you asked for it", "model": "the model asked for it", "reactive": "the window was full",
}  # fmt: skip
_NAMED = re.compile(r"\{\{(\w+)\}\}")

Placed = list[tuple[str, Block, int]]
"""Blocks in order with role and event, as `View.placed` gives them."""


class NotesLayer:
    """Writes notes at the end of turns; compacts by them at the mark, or when a turn begins near it, as long
    as no turn must be swallowed."""

    name = "notes"
    order = 50
    moments: frozenset[Moment] = frozenset(("turn_end", "near", "mark"))

    async def consider(self, now: LayerContext) -> Sequence[Event]:
        """NotesWritten at a turn's end if their text changed, Compacted at the mark; none for nothing to do. Raises
        ModelError and AgentError."""
        return await self._write(now) if now.moment == "turn_end" else await self._compact(now)

    # ------------------------------------------------------------------ writing

    async def _write(self, now: LayerContext) -> Sequence[Event]:
        placed = now.view.placed()
        path = now.folder / NOTES
        since = max(now.noted if path.exists() else 0, now.tried)
        if now.state.blocked or not _due(now, placed, since):
            return ()
        before = read_notes(path)
        old = _template(now).found_in(before or "")
        above = old.found_in(_standing(block for _, block, _ in placed))
        policy = NotesToolPolicy(old, _spellings(path), section_tokens=_limit(now, "notes_section_tokens"), above=above)
        upto = max(source for _, _, source in placed)
        forked = await now.fork(
            ForkOrder(
                purpose="notes",
                directive=_directive(now, policy, path),
                max_turns=FORK_TURNS,
                max_tokens=FORK_TOKENS,
                permit=policy.permit,
                answer=policy.answer,
                enough=policy.enough,
            )
        )
        if policy.notes.empty or (not policy.edits and forked.status != "finished"):
            raise AgentError(
                f"the notes were not written; a later turn will try again: {forked.message or forked.status}"
            )
        if policy.notes == old:  # they cover what they covered before, and no more
            return (LayerDecision(layer=self.name, words=NOTHING_NEW),)
        if read_notes(path) != before:
            raise AgentError(
                f"{path.name} was changed by another program and left as it is; a later turn will try again"
            )
        kept = policy.notes.limited(_limit(now, "notes_section_tokens"), _limit(now, "notes_tokens"))
        written = now.redact(str(kept))
        try:
            write_atomically(path, written.encode("utf-8", "replace"))
        except OSError as problem:
            raise AgentError(f"cannot write {path} ({problem.strerror or problem}): free some space") from None
        return (NotesWritten(upto=upto, tokens=estimate_text(written), calls=policy.edits),)

    # ------------------------------------------------------------------ compacting

    async def _compact(self, now: LayerContext) -> Sequence[Event]:
        if now.instructions or now.first or now.last or not now.noted or not now.view.editable:
            return ()  # the user wants it another way, or thinking of the open turn must stay
        if now.setting("engine") == "server":
            return ()
        notes = noted(now)
        if not notes:
            return ()
        placed = now.view.placed()
        cut = _cut(now, placed)
        if cut is None:
            return ()
        extra = await now.hook("pre_compact", {"trigger": now.trigger, "method": "notes"})
        head = HEAD.format(path=_spellings(now.folder / NOTES)[0]) + (OPEN if now.open_turn else "")
        told = f"{head}\n\n<notes>\n{notes}\n</notes>"
        left = left_ranges(now.view, now.folder, [(1, placed[cut][2] - 1)])
        blocks = [text_block(told if left is None else f"{told}\n{left.line}")]
        blocks += (again := _request_again(now, placed, cut))
        last = placed[cut][2] - 1
        made = Compacted(trigger=now.trigger, method="notes", first=1, last=last, blocks=tuple(blocks))
        after, before = now.view.tokens_after(made), now.view.count().tokens
        if after is None or after >= before or after >= now.state.auto_mark:
            return ()
        room = room_to_say(now, (block for _, block, _ in placed[:cut]), blocks, after)
        said = said_in(now, 1, last, room, but=now.request.id if again and now.request is not None else 0)
        blocks += said
        after += round(sum(map(estimate_block, said)) * now.view.calibration.factor)
        names: list[str] = []
        tail = [str(block["text"]) for _, block, _ in placed[cut:] if is_context(block)]
        for name, words in await now.restore():
            if _stands(placed[cut:], words):
                continue
            rest = without_told([text_block(words)], tail)  # what stays tells the others anew
            untold = str(rest[0]["text"]) if rest else ""
            if untold != words and not told_in([untold]):
                continue
            words = untold
            size = round(estimate_text(words) * now.view.calibration.factor)
            if after + size <= min(before, now.state.auto_mark) // 2:
                after += size
                names.append(name)
                blocks.append(text_block(words))
        blocks += [text_block(words) for words in extra if words.strip()]
        blocks += newest_picture(now, [block for _, block, _ in placed[:cut]], [block for _, block, _ in placed[cut:]])
        after = now.view.tokens_after(msgspec.structs.replace(made, blocks=tuple(blocks))) or after
        if after >= before:  # with the user's words beside them the notes save nothing
            return ()
        if left is not None and not now.dry and left.write():  # the disk failed: nothing names what is not there
            blocks[0] = text_block(told)
        made = msgspec.structs.replace(
            made, blocks=tuple(blocks), restored=tuple(names), tokens_before=before, tokens_after=after,
            asked=(1, 1 + len(again)),
        )  # fmt: skip
        await now.hook("post_compact", {"trigger": now.trigger, "method": "notes", "before": before, "after": after})
        why = WHY.get(now.trigger, f"it {'came near' if now.moment == 'near' else 'reached'} the threshold")
        words = TOOK_PLACE.format(gone=before - after, before=before, why=why)
        return (made, LayerDecision(layer=self.name, words=words))


def _stands(kept: Sequence[tuple[str, Block, int]], words: str) -> bool:
    """Whether a skill, in the same version, or a file that was read stands in what is kept word for word."""
    opening = words.partition("\n")[0]
    if opening.startswith("<skill "):
        inner = (block.get("content") if block["type"] == "tool_result" else [block] for _, block, _ in kept)
        return any(opening in (each if isinstance(each, str) else text_of(each or [])) for each in inner)
    return file_stands([block for _, block, _ in kept], words)


notes = NotesLayer()


# ---------------------------------------------------------------------- when


def _limit(now: LayerContext, name: str) -> int:
    """A setting in tokens, within its share of the window."""
    return notes_limit(name, now.setting(name), now.state.window)


def _due(now: LayerContext, placed: Placed, since: int) -> bool:
    """Whether enough was added since event `since` (0: no notes yet) for notes to be written."""
    need = _limit(now, "notes_step" if since else "notes_start") / now.view.calibration.factor
    added = calls = 0
    asked = now.turn_starts[-1] if now.turn_starts else 0
    calm = True
    for _, block, source in reversed(placed):
        if source <= since:
            break
        called = block["type"] == "tool_use"
        calls += called
        calm = calm and not (called and source > asked)
        if added < need and source != now.view.undoable:  # a summary is nothing new
            added += estimate_block(block) if block["type"] not in THINKING else 0
    soon = near_threshold(now.state, now.setting("store_chars"))  # the next turn may begin with a compaction
    return added >= need and (not since or calls >= now.setting("notes_calls") or calm or soon)


# ---------------------------------------------------------------------- what the fork is told


def _directive(now: LayerContext, policy: NotesToolPolicy, path: Path) -> str:
    """The prompt with its values, in an element that names the file."""
    limit, total = _limit(now, "notes_section_tokens"), _limit(now, "notes_tokens")
    full = [f'"{name}" ({size:,} of {limit:,} tokens)' for name, size in policy.notes.full(limit)]
    long = f"- Full or nearly so, shorten these first: {', '.join(full)}." if full else ""
    size = estimate_text(str(policy.notes))
    if size > total:
        long += f"\n- All notes together are {size:,} tokens, over the {total:,} allowed: shorten them."
    values = {
        "path": _spellings(path)[0],
        "notes": (f"{ABOVE}\n\n" if STANDS.partition(":")[0] in (shown := policy.shown) else "") + shown.strip(),
        "section_tokens": f"{limit:,}",
        "tokens": f"{total:,}",
        "long": long,
    }
    prompt = _own_file(now, OWN_FILES[1]) or _ours("notes_prompt.md")
    return f'<update-notes file="{values["path"]}">\n{substituted(prompt, values).strip()}\n</update-notes>'


def substituted(text: str, values: Mapping[str, str]) -> str:
    """`{{name}}` replaced once by its value; a value is never looked into, an unknown name stays."""
    return _NAMED.sub(lambda found: values.get(found[1], found[0]), text)


def noted(now: LayerContext, most: int | None = None) -> str:
    """The session's notes as they stand in place of what they cover, in at most `most` estimated tokens if given; ""
    when there are none, or none so short."""
    text = read_notes(now.folder / NOTES) if now.noted else None
    kept = _template(now).found_in(text or "")
    whole = kept.limited(_limit(now, "notes_section_tokens"), _limit(now, "notes_tokens")).noted
    if most is None or estimate_text(whole) <= most:
        return whole
    cut = kept.limited(_limit(now, "notes_section_tokens"), most).noted
    return cut if estimate_text(cut) <= most else ""


def notes_before(blocks: Iterable[Block]) -> int:
    """Estimated tokens of the notes that an earlier compaction has put among these blocks."""
    texts = (str(block.get("text", "")) for block in blocks)
    return sum(estimate_text(text) for text in texts if text.startswith(STANDING))


def _standing(blocks: Iterable[Block]) -> str:
    """The notes that an earlier compaction has put among these blocks, the newest; "" for none."""
    texts = [text for block in blocks if (text := str(block.get("text", ""))).startswith(STANDING)]
    return texts[-1].partition("<notes>\n")[2].rpartition("\n</notes>")[0] if texts else ""


def notes_beside(now: LayerContext, gone: Range, most: int) -> list[Block]:
    """The notes of a range that a summary takes the place of, to stand beside it in at most `most` estimated tokens:
    they were written while each turn was new. None where they tell of turns that stay."""
    if gone.first > 1 or now.noted > gone.last or not (notes := noted(now, most - BESIDE_TOKENS)):
        return []
    return [text_block(BESIDE.format(path=_spellings(now.folder / NOTES)[0], notes=notes))]


def _template(now: LayerContext) -> Notes:
    return Notes.template(_own_file(now, OWN_FILES[0]) or _ours("notes_template.md"))


def _ours(name: str) -> str:
    return files("ipyagent.context").joinpath(name).read_text(encoding="utf-8")


def _own_file(now: LayerContext, name: str) -> str:
    """The project's own text in place of ours, if this user trusts the project; "" when there is none."""
    path = now.folder.parent.parent / OWN / name  # .ipyagent/sessions/<id> is the session's folder
    if not path.is_file():
        return ""
    project = Project(now.folder.parents[2], user_folder())
    if project.sessions != now.folder.parent or not (project.trusted or now.setting("trust_all")):
        return ""
    try:
        with reading(path) as file:
            return file.read(MOST_OWN_BYTES).decode("utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        raise AgentError(f"cannot read {path}: {problem}; fix or remove it") from None


def _spellings(path: Path) -> tuple[str, ...]:
    """How the notes may be named, the way that we name them first."""
    short = Path(*path.parts[-4:]).as_posix()
    return (short, f"./{short}", path.as_posix(), str(path))


# ---------------------------------------------------------------------- what stays


def _cut(now: LayerContext, placed: Placed) -> int | None:
    """The block from which on everything is kept verbatim: the last noted message, or before it until
    enough is kept; None when nothing would go, or what is not noted would leave the threshold near."""
    factor = now.view.calibration.factor
    noted = max((at for at, item in enumerate(placed) if item[2] <= now.noted), default=-1)
    latest = noted  # the start of the last noted message
    while latest > 0 and placed[latest - 1][0] == placed[latest][0]:
        latest -= 1
    least, most = _limit(now, "keep_tokens") / factor, _limit(now, "keep_most_tokens") / factor
    unnoted = most
    if now.moment != "near":  # it has no other place to stand; near the threshold, notes of it may still come
        notes_tokens = now.view.head_tokens + _limit(now, "notes_tokens") // 2
        unnoted = max(most, LOW_SHARE * now.state.auto_mark / factor - notes_tokens)
    tokens = messages = 0
    worded = False
    best: int | None = None
    for at in range(len(placed) - 1, 0, -1):
        role, block, _ = placed[at]
        tokens += estimate_block(block) if block["type"] not in THINKING else 0
        if tokens > (unnoted if best is None else most):
            break
        worded = worded or block["type"] == "text"
        if placed[at - 1][0] != role:
            messages, worded = messages + worded, False
        if at <= latest and _legal(now, placed, at):
            best = at
            if tokens > most:
                break
            if tokens >= least and messages + worded >= now.setting("keep_messages"):
                break
    return best


def _legal(now: LayerContext, placed: Placed, at: int) -> bool:
    """Whether the kept part may begin here: at the start of a turn or after complete results."""
    role, block, source = placed[at]
    before_role, before, before_source = placed[at - 1]
    if role == "user":
        return block["type"] != "tool_result" and source in now.turn_starts and before_source != source
    return before_role == "user" and before["type"] == "tool_result"


def _request_again(now: LayerContext, placed: Placed, cut: int) -> list[Block]:
    """The newest request word for word, when its turn is not over and it is not among what is kept."""
    asked = now.request
    if asked is None or not now.open_turn or any(source == asked.id for _, _, source in placed[cut:]):
        return []
    return [text_block(f"<request>\n{asked.text}\n</request>\nThis is the user's newest request, being worked on.")]
