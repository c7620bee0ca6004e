"""What of a folder is loaded once it is trusted, what tells this very folder from another at its path, and what this
user has written there.

The mark is a random word in `.ipyagent/sessions/`, which git ignores and no clone brings along; the user's own
directory keeps its digest beside the path and the owners. So a new clone at the same path asks again, also one
that got the same inode, and so does a copy or a moved folder (another path). A restart, a remount, and a backup
put back in its place with `sessions/` do not ask.
"""

from __future__ import annotations

import hmac
import os
import secrets
import tempfile
from collections.abc import Collection
from hashlib import sha256
from pathlib import Path

from ipyagent.nofollow import FOLDER, is_file, names, opened, private_folder, reading, remove

MARK = ".mark"
MARK_BYTES = 200
KEY = "key"
SESSION = "session"
"""What is signed of a session: its id."""
_KEY_BYTES = 32
INSTRUCTIONS = ("AGENTS.md", "CLAUDE.md", "AGENT.local.md")
"""Instruction files that stand in a folder itself, in the order in which they are loaded."""
_OWN = ("AGENT.md", "AGENT.local.md", "rules", "config.toml", "memory", "worktrees", "skills", "agents", "agent-memory",
        "mcp.json", "notes")  # fmt: skip
_AROUND = ("skills", ".agents/skills", ".claude/skills")


def read_small(path: Path, most: int) -> bytes | None:
    """The first `most` bytes of an ordinary file; None when there is none. The last part of the path must
    be no link (under `.ipyagent`: none), and a pipe is not waited for."""
    try:
        with reading(path, base=path.parent) as file:
            return file.read(most)
    except (OSError, ValueError):
        return None


def digest_of_mark(sessions: Path) -> str:
    """What the user's own directory keeps of a folder's mark; "" when it has none."""
    mark = read_small(sessions / MARK, MARK_BYTES)
    return sha256(mark).hexdigest() if mark and mark.strip() else ""


def mark_folder(sessions: Path, known: Collection[str]) -> str:
    """Give a folder its mark and return the digest. A mark that is there already stays only if its digest is
    among the `known`: one that came with a folder is a word that others know. Raises OSError."""
    if (there := digest_of_mark(sessions)) and there in known:
        return there
    mark = secrets.token_hex(32).encode()
    path = sessions / MARK
    remove(path)
    with os.fdopen(opened(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb") as file:
        file.write(mark)
    return sha256(mark).hexdigest()


def signature(user: Path, purpose: str, content: bytes) -> str:
    """What only this user's own folder can say of a content: 32 hex digits, made with a random key that is written
    there at the first call (mode 0600). A copy of the content elsewhere has the same. Raises OSError."""
    key = read_small(user / KEY, _KEY_BYTES) or _new_key(user)
    return hmac.new(key, f"{purpose}\0".encode() + content, "sha256").hexdigest()[:32]


def is_signed(user: Path, purpose: str, content: bytes, given: str) -> bool:
    """Whether `given` is the `signature` of the content by this user's own folder."""
    key = read_small(user / KEY, _KEY_BYTES)
    if not key or len(key) < _KEY_BYTES:
        return False
    made = hmac.new(key, f"{purpose}\0".encode() + content, "sha256").hexdigest()[:32]
    return hmac.compare_digest(made.encode(), given.encode("utf-8", "replace"))


def _new_key(user: Path) -> bytes:
    """A key, written whole or not at all; of two writers the first wins."""
    private_folder(user)
    handle, path = tempfile.mkstemp(dir=user, prefix=".key-")  # 0600
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(secrets.token_bytes(_KEY_BYTES))
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(path, user / KEY)
        except FileExistsError:
            pass
        except OSError:  # a file system without links
            if read_small(user / KEY, _KEY_BYTES) is None:
                os.replace(path, user / KEY)
    finally:
        Path(path).unlink(missing_ok=True)
    key = read_small(user / KEY, _KEY_BYTES)
    if not key or len(key) < _KEY_BYTES:
        raise OSError(f"{user / KEY} is not a key: remove it")
    return key


def folders_down(root: Path, here: Path | None) -> tuple[Path, ...]:
    """From the root down to where the notebook is; of a notebook in a linked worktree of the root's repository:
    from the worktree's top down. Elsewhere: the root alone."""
    if here is None:
        return (root,)
    top = root if here.is_relative_to(root) else _worktree(root, here)
    if top is None:
        return (root,)
    inner = here.relative_to(top).parts
    return tuple(top.joinpath(*inner[:depth]) for depth in range(len(inner) + 1))


def _worktree(root: Path, here: Path) -> Path | None:
    """The top of the linked worktree that `here` lies in, if the root's own repository knows of it: a folder
    cannot say by itself that it belongs to another."""
    for top in (here, *here.parents):
        marker = top / ".git"
        if not marker.is_file():
            continue
        try:
            for entry in (root / ".git" / "worktrees").iterdir():
                known = read_small(entry / "gitdir", 4096) or b""
                if (entry / os.fsdecode(known).strip()).resolve() == marker.resolve():
                    return top
        except OSError:
            return None
        return None
    return None


def carried(folders: tuple[Path, ...]) -> list[str]:
    """What stands in a project that is loaded only from a trusted one, by name; `folders` from the root down."""
    root = folders[0]
    found = [name for folder in folders for name in INSTRUCTIONS if os.path.lexists(folder / name)]
    own = root / FOLDER
    found += [name for name in _OWN if _holds(own / name)]
    found += [name for name in _AROUND if _holds(root / name, "SKILL.md")]
    if any(is_file(own / "sessions" / name / "transcript.jsonl") for name in names(own / "sessions")):
        found.append("sessions")
    return list(dict.fromkeys(found))


def _holds(path: Path, name: str = "") -> bool:
    """Whether a file stands there, or a folder that is not empty (with a folder in it that holds `name`)."""
    try:
        if not path.is_dir():
            return not name and os.path.lexists(path)
        return any(not name or os.path.lexists(entry / name) for entry in path.iterdir())
    except OSError:
        return True  # it cannot be looked into: nothing speaks for its being empty

