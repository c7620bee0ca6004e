"""Which files a tool may touch, and which take effect later without anybody's asking (agents obey them, or a program
runs them). Every path is resolved (links followed) before it is judged, and paths are written relative to the
notebook's folder: there the user's code and the shell run, so one spelling works everywhere."""

from __future__ import annotations

import hashlib
import os
import re
import stat
import unicodedata
from collections.abc import Iterable
from difflib import get_close_matches
from fnmatch import fnmatchcase
from glob import escape
from pathlib import Path
from typing import Any

from ipyagent.errors import ToolFailure
from ipyagent.journal.journal import FOLDER
from ipyagent.journal.protocols import Permission, PermissionQuestion, Workspace

GUARDED = (".git", ".ipyagent")
"""Folders no tool writes into, at any depth."""
_SHORT = re.compile(r"(?:(git|gi[0-9a-f]{4})|ipyage|ip[0-9a-f]{4})~[0-9]+")
"""Their names of eight characters on Windows (`GIT~1`)."""

_UNREAL = ("/proc", "/sys", "/dev")


def resolved(path: str, workspace: Workspace) -> Path:
    """The absolute path with links followed. Raises ToolFailure for what is no path."""
    if not path or "\x00" in path:
        raise ToolFailure(f"{path!r} is not a path")
    try:
        target = (workspace.folder / os.path.expanduser(path)).resolve()
        return target if target.exists() else _stored(path, workspace) or target
    except (OSError, RuntimeError, ValueError) as problem:  # a circle of links, a lone surrogate, too long
        raise ToolFailure(f"{path}: {problem}") from None


def _stored(path: str, workspace: Workspace) -> Path | None:
    """The stored result that a path like "tool-results/x.txt" means."""
    folder, _, name = path.partition("/")
    if folder != FOLDER or not name or "/" in name:
        return None
    places = [place / name for place in workspace.allowed if place.name == FOLDER]
    return next((place for place in places if place.is_file()), None)


def shown(path: Path, workspace: Workspace) -> str:
    """`path` relative to the notebook's folder when it is in the project, else absolute."""
    if path.is_relative_to(workspace.root) or path.is_relative_to(workspace.folder):
        return Path(os.path.relpath(path, workspace.folder)).as_posix()
    return str(path)


def readable(path: Path, workspace: Workspace) -> bool:
    """Whether a resolved path may be read without a question."""
    folders = (workspace.root, workspace.folder, *workspace.allowed)
    return any(path.is_relative_to(folder.expanduser().resolve()) for folder in folders) and not _unreal(path)


def read_permission(path: str, workspace: Workspace) -> Permission:
    """ "none" inside the project and the allowed folders, "ask" elsewhere."""
    return "none" if readable(resolved(path, workspace), workspace) else "ask"


def reading(name: str, title: str) -> dict[str, Any]:
    """What `@tool` says of the tool `name` that reads what stands at its argument `path`; `title` is the question for a
    path that is outside."""

    def permission(given: dict[str, Any], workspace: Workspace) -> Permission:
        return read_permission(given["path"], workspace)

    def question(given: dict[str, Any], workspace: Workspace) -> PermissionQuestion:
        sought = f": {given['pattern']}" if "pattern" in given else ""
        return PermissionQuestion(title=title, text=f"{resolved(given['path'], workspace)}{sought}")

    def pattern(given: dict[str, Any], workspace: Workspace) -> str:
        return f"{name}({escape(str(resolved(given['path'], workspace)))})"

    rules = {"permission": permission, "question": question, "pattern": pattern}
    return {**rules, "parallel": True, "recreatable": True, "writes": False}


def writable(path: str, workspace: Workspace) -> Path:
    """The resolved path of a file that a tool may write. Raises ToolFailure outside the project,
    in `.git` and `.ipyagent`, and for anything that is not a regular file."""
    target = resolved(path, workspace)
    if not target.is_relative_to(workspace.root):
        raise ToolFailure(f"{path} is outside the project {workspace.root}: files are written inside it only")
    for part in target.relative_to(workspace.root).parts:
        if is_guarded(part):
            raise ToolFailure(f"{path}: files in {part!a} are not written by tools")
    try:
        mode = target.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return target
    except OSError as problem:
        raise ToolFailure(f"{path}: {problem.strerror or problem}") from None
    if not stat.S_ISREG(mode):
        raise ToolFailure(f"{path} is not a regular file")
    if not os.access(target, os.W_OK):
        raise ToolFailure(f"{path} is read-only")
    return target


def same_file_name(part: str) -> str:
    """What a part of a path is for the file system that tells least apart: case, width and the form of accents count
    nothing (APFS, NTFS), nor do characters without a shape (HFS+), dots and blanks at the end and what follows a colon
    (NTFS); the short names of guarded folders are theirs."""
    if part.isascii():
        folded = part.casefold()
    else:
        shown = (each for each in unicodedata.normalize("NFKC", part) if unicodedata.category(each)[0] != "C")
        folded = unicodedata.normalize("NFKC", "".join(shown).casefold())
    name = folded.partition(":")[0].rstrip(". ")
    short = _SHORT.fullmatch(name)
    return name if short is None else GUARDED[0] if short[1] else GUARDED[1]


def is_guarded(part: str) -> bool:
    """Whether a part of a path is a folder that no tool writes into, on any file system."""
    return same_file_name(part) in GUARDED


def _unreal(path: Path) -> bool:
    return any(path.is_relative_to(folder) for folder in _UNREAL)


def read_bytes(path: Path, most: int) -> tuple[bytes, int]:
    """Up to `most` bytes of a regular file, and its size. Never waits: devices, FIFOs and files
    the kernel makes up are refused. Raises ToolFailure."""
    if _unreal(path):
        raise ToolFailure(f"{path} is not a regular file")
    try:
        # Without O_NONBLOCK opening a FIFO waits for a writer, before its kind can be seen.
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    except FileNotFoundError:
        raise ToolFailure(f"no file {path}{_nearest(path)}") from None
    except IsADirectoryError:
        raise ToolFailure(f"{path} is a folder; list it with glob") from None
    except OSError as problem:
        raise ToolFailure(f"{path}: {problem.strerror or problem}") from None
    with os.fdopen(descriptor, "rb") as file:
        state = os.fstat(descriptor)
        if stat.S_ISDIR(state.st_mode):
            raise ToolFailure(f"{path} is a folder; list it with glob")
        if not stat.S_ISREG(state.st_mode):
            raise ToolFailure(f"{path} is not a regular file")
        try:
            return file.read(most), state.st_size
        except OSError as problem:
            raise ToolFailure(f"{path}: {problem.strerror or problem}") from None


def digest(data: bytes) -> str:
    """SHA-256 in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def _nearest(path: Path) -> str:
    folder = path.parent
    if not folder.is_dir():
        return f"; there is no folder {folder}"
    try:
        names = os.listdir(folder)[:5_000]
    except OSError:
        return ""
    close = get_close_matches(path.name, names, n=3, cutoff=0.5)
    return f"; nearest: {', '.join(close)}" if close else ""


# ---- Files that take effect later, without anybody's asking: agents obey them, or a program runs them by itself
# (git, a shell, Python, an editor, CI, a build). Mode auto asks before one is written: what stands there stays in
# force after the session, and may have come from a page that the model read. This is the one list. A name is
# compared as the file system that tells least apart would (`same_file_name`); `*` stands for any letters.

FILES = {
    "which agents obey": """
        AGENTS.md AGENTS.override.md AGENT.md AGENT.local.md CLAUDE.md CLAUDE.local.md GEMINI.md QWEN.md WARP.md
        SKILL.md .cursorrules .windsurfrules .clinerules .roorules .goosehints .rules copilot-instructions.md
        .aider.conf.yml .mcp.json mcp.json""",
    "which Python runs or obeys automatically": """
        conftest.py sitecustomize.py usercustomize.py *.pth .pdbrc .pythonrc .pythonrc.py pytest.ini .pytest.ini tox.ini
        noxfile.py setup.py setup.cfg pyproject.toml .coveragerc""",
    "which IPython or Jupyter runs automatically": """
        ipython_config.py ipython_kernel_config.py jupyter_*config.py jupyter_*config.json kernel.json""",
    "which git runs or obeys automatically": """
        .gitattributes .gitmodules .gitconfig .hgrc .pre-commit-config.yaml .pre-commit-config.yml
        .pre-commit-hooks.yaml lefthook.yml lefthook.yaml .lefthook.yml .lintstagedrc* lint-staged.config.*""",
    "which CI runs automatically": """
        .gitlab-ci.yml .travis.yml azure-pipelines.yml bitbucket-pipelines.yml .drone.yml appveyor.yml .appveyor.yml
        .cirrus.yml Jenkinsfile""",
    "which a shell runs automatically": """
        .bashrc .bash_profile .bash_login .bash_logout .bash_aliases .profile .zshrc .zshenv .zprofile .zlogin .zlogout
        .kshrc .mkshrc .cshrc .tcshrc .login .logout .inputrc .envrc .env .env.local .autoenv .xinitrc .xprofile
        .xsession .xsessionrc .pam_environment mise.toml .mise.toml .tool-versions config.fish
        profile.ps1 Microsoft.PowerShell_profile.ps1""",
    "which an editor or a debugger runs automatically": """
        .vimrc .gvimrc .exrc .nvimrc .nvim.lua .lvimrc .dir-locals.el .emacs *.code-workspace .devcontainer.json
        .gdbinit .lldbinit .sublime-project""",
    "which a build runs": """
        Makefile GNUmakefile *.mk justfile .justfile Taskfile.yml Taskfile.yaml CMakeLists.txt *.cmake meson.build
        SConstruct Rakefile Gemfile build.gradle build.gradle.kts settings.gradle settings.gradle.kts gradlew pom.xml
        build.rs Cargo.toml Snakefile Dockerfile Dockerfile.* Containerfile docker-compose.yml docker-compose.yaml
        compose.yml compose.yaml Procfile Vagrantfile flake.nix shell.nix default.nix dodo.py fabfile.py package.json
        *.config.js *.config.mjs *.config.cjs *.config.ts *.config.mts .eslintrc.js .eslintrc.cjs .babelrc.js
        Gruntfile.js gulpfile.js .latexmkrc latexmkrc""",
    "which installers obey": """
        .npmrc .yarnrc .yarnrc.yml .pnpmfile.cjs bunfig.toml pip.conf pip.ini .pypirc .condarc uv.toml .gemrc .netrc
        .curlrc .wgetrc""",
    "which a program runs when it starts": """
        .Rprofile .Renviron Rprofile.site startup.jl .octaverc startup.m .sqliterc .psqlrc .duckdbrc .my.cnf .tmux.conf
        .screenrc .mailcap crontab""",
}  # fmt: skip
FOLDERS = {
    "which agents obey": """
        .claude .agents .codex .gemini .cursor .windsurf .continue .clinerules .roo .kiro .qwen .amazonq .junie
        .ipyagent skills/*""",
    "which git runs or obeys automatically": ".git .husky .githooks .config/git .hg",
    "which CI runs automatically": ".github .circleci .buildkite .woodpecker .forgejo .gitea .gitlab",
    "which an editor runs automatically": ".vscode .idea .zed .fleet .devcontainer .vim .emacs.d .config/nvim",
    "which IPython or Jupyter runs automatically": ".ipython profile_*/startup .jupyter jupyter_*config.d",
    "which runs when you log in": """
        .config/systemd .config/autostart .config/environment.d .config/fish .ssh LaunchAgents LaunchDaemons init.d
        profile.d cron.d cron.daily cron.hourly cron.weekly cron.monthly etc/systemd spool/cron zshrc.d bashrc.d""",
    "which installers or builds obey": ".cargo .config/pip .config/uv .bundle .yarn .julia/config .config/direnv",
}
"""Folders of such files, the last parts of their path."""


def _table(words: dict[str, str]) -> dict[str, str]:
    return {same_file_name(name): why for why, names in words.items() for name in names.split()}


def _any(names: Iterable[str]) -> str:
    return "|".join(re.escape(name).replace(r"\*", "[^/]*") for name in names)


_FILES, _FOLDERS = _table(FILES), _table(FOLDERS)
_FILE = re.compile(_any(_FILES))
_FOLDER = re.compile(rf"(?<=/)(?:{_any(_FOLDERS)})(?=/)")
_WHOLE = re.compile(rf"(?<=/)(?:{_any(name for name in _FOLDERS if '*' not in name)})(?=/$)")
_HOME = re.compile(r"(?:~|\$HOME|\$\{HOME\})(?=/|$)")


def in_force(target: str, folder: Path, *, whole: bool = False) -> str:
    """Why a write to `target`, as code or a command in `folder` names it, needs a yes in mode auto ("it writes
    AGENTS.md, which agents obey"); "" when it does not. `whole`: it may be a folder that comes or goes with all that
    is in it, or a link to one."""
    if not target or len(target) > 4_000 or "\n" in target or "\0" in target:
        return ""
    home = Path(os.path.expanduser("~"))
    path = Path(os.path.normpath(_HOME.sub(home.as_posix(), target)))
    for base in (folder, home):
        if path.is_absolute() and path.is_relative_to(base):
            path = path.relative_to(base)
    parts = [same_file_name(part) for part in path.parts if part not in ("..", path.anchor)]
    if not parts:
        return ""
    if _FILE.fullmatch(parts[-1]):
        return f"it writes {path.name}, {_why(parts[-1], _FILES)}"
    if found := _FOLDER.search(f"/{'/'.join(parts[:-1])}/"):
        return f"it writes in {found[0]}, {_why(found[0], _FOLDERS)}"
    if whole and (found := _WHOLE.search(f"/{'/'.join(parts)}/")):
        return f"it writes {found[0]}, {_why(found[0], _FOLDERS)}"
    return ""


def _why(name: str, table: dict[str, str]) -> str:
    return table.get(name) or next(why for like, why in table.items() if fnmatchcase(name, like))
