"""Where a user keeps what no command of the agent may read."""

from __future__ import annotations

import os
import shlex
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Generic, TypeVar

HOME = """
.ssh .aws .azure .config/gcloud .netrc .pypirc .gnupg .kube .docker/config.json .password-store .local/share/keyrings
.local/share/kwalletd .git-credentials .config/git/credentials .config/gh .config/glab-cli .config/rclone .config/op
.config/sops .huggingface/token .cache/huggingface/token .kaggle .databrickscfg .snowflake .pgpass .my.cnf .s3cfg .boto
.terraform.d/credentials.tfrc.json .vault-token .cargo/credentials .cargo/credentials.toml .gem/credentials
.config/containers/auth.json .subversion/auth .config/uv/credentials.toml .local/share/uv/credentials .Renviron
.cdsapirc .cdsrc .ecmwfapirc .config/earthengine .mlflow/credentials .config/wandb .dbt/profiles.yml .snowsql .mc
.duckdb/stored_secrets .prefect .modal.toml .fly .config/ngrok .config/age .config/openai .openai .config/anthropic
.gemini .claude.json .config/github-copilot .local/share/jupyter/notebook_secret .cache/huggingface/stored_tokens
.local/share/gnupg .Xauthority .config/Bitwarden .config/Bitwarden\\ CLI .config/1Password
.npmrc .yarnrc.yml .m2/settings.xml .gradle/gradle.properties .streamlit/secrets.toml .oci .config/doctl .config/hub
.bash_history .zsh_history .python_history .Rhistory .local/share/fish .local/share/atuin .lesshst .viminfo
.node_repl_history .psql_history .mysql_history .sqlite_history
.ipython/profile_default/history.sqlite .ipython/profile_default/history.sqlite-wal
.local/share/jupyter/runtime Library/Jupyter/runtime .claude/.credentials.json .codex/auth.json
.mozilla .thunderbird .config/google-chrome .config/chromium .config/BraveSoftware .config/microsoft-edge
.config/vivaldi .config/opera snap/firefox .var/app/org.mozilla.firefox
Library/Keychains Library/Cookies Library/Safari Library/Mail Library/Messages
Library/Application\\ Support/Google/Chrome Library/Application\\ Support/Firefox
Library/Application\\ Support/BraveSoftware Library/Application\\ Support/Microsoft\\ Edge
"""
"""In the home folder: keys, tokens, keyrings, browsers' profiles, what was typed, and the keys of running kernels."""
_HOME = tuple(shlex.split(HOME))
SYSTEM = ("/etc/shadow", "/etc/gshadow", "/etc/sudoers.d", "/etc/ssl/private", "/etc/krb5.keytab")
_NAMES = (".env", ".env.local", ".env.production", ".env.development", ".envrc")
_MOST = 2_000
"""Entries of a folder whose folders are looked at for such files."""
_GRAIN = 1_000_000_000
"""Nanoseconds within which a file or folder may change again and show the same time."""


def secrets_of(home: Path, root: Path, more: tuple[str, ...] = ()) -> tuple[Path, ...]:
    """The existing ones, resolved, outermost only: those above and `more`, our own folder, and the files `.env` of
    folders around the project and right below the home folder. What lies in the project is its own affair, unless it
    is one of the first."""
    own, runtime = (os.environ.get(name, "") for name in ("IPYAGENT_HOME", "JUPYTER_RUNTIME_DIR"))
    named = [f"{place}/{each}" for place in _homes(str(home)) for each in _HOME]
    named += [*SYSTEM, os.path.expanduser(own) if own else f"{home}/.ipyagent", *([runtime] if runtime else [])]
    named += [os.path.expanduser(each) if each[:1] in "~/" else f"{home}/{each}" for each in more if each.strip()]
    found = {Path(path).resolve() for path in named if os.path.lexists(path)}
    around = [str(home), *_folders(str(home)), *map(str, root.parents), *_folders(str(root.parent))]
    for folder in dict.fromkeys(around):
        if folder != str(root) and not folder.startswith(f"{root}/"):
            there = (Path(path).resolve() for path in _files(folder))
            found.update(path for path in there if not path.is_relative_to(root))
    # the project itself, or a folder around it, cannot be hidden from its commands
    kept = sorted(path for path in found if path.exists() and not root.is_relative_to(path))
    outermost: list[Path] = []
    for path in kept:
        if not outermost or not path.is_relative_to(outermost[-1]):
            outermost.append(path)
    return tuple(outermost)


def _homes(home: str) -> list[str]:
    """The home folders that this user's commands could read: root's could read those of all."""
    others: list[str] = []
    if sys.platform != "win32":
        import pwd

        with suppress(KeyError):
            others = [pwd.getpwuid(os.getuid()).pw_dir]  # where ssh looks, whatever HOME says
            others += _folders("/home") if os.geteuid() == 0 else ()
    return list(dict.fromkeys((home, *others)))


T = TypeVar("T")


class Seen(Generic[T]):
    """What `look` makes of a path, which is looked at again once it has changed; `nothing` where it cannot be."""

    def __init__(self, look: Callable[[str], T], nothing: T) -> None:
        self._look, self._nothing = look, nothing
        self._known: dict[str, tuple[tuple[int, int, int], T]] = {}

    def __call__(self, path: str) -> T:
        try:
            state = os.stat(path)
            stamp, known = (state.st_ino, state.st_mtime_ns, state.st_size), self._known.get(path)
            if known is None or known[0] != stamp:
                known = (stamp, self._look(path))
                if time.time_ns() - state.st_mtime_ns > _GRAIN:
                    self._known[path] = known
        except OSError:
            return self._nothing
        return known[1]


def _folders_in(place: str) -> tuple[str, ...]:
    found: list[str] = []
    with os.scandir(place) as entries:
        for entry in islice(entries, _MOST):
            with suppress(OSError):  # a link that leads round, or where nobody may look
                if entry.is_dir():
                    found.append(entry.path)
    return tuple(found)


def _files_in(place: str) -> tuple[str, ...]:
    return tuple(path for name in _NAMES if os.path.lexists(path := os.path.join(place, name)))


_folders: Seen[tuple[str, ...]] = Seen(_folders_in, ())
_files: Seen[tuple[str, ...]] = Seen(_files_in, ())
"""The folders and the `.env` files in a folder."""
