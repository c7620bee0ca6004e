"""Where a user keeps what no command of the agent may read."""

from __future__ import annotations

import os
import time
from functools import lru_cache
from pathlib import Path

HOME = """
.ssh .aws .azure .config/gcloud .netrc .pypirc .gnupg .kube .docker/config.json .password-store .local/share/keyrings
.local/share/kwalletd .git-credentials .config/git/credentials .config/gh .config/glab-cli .config/rclone .config/op
.config/sops .huggingface/token .cache/huggingface/token .kaggle .databrickscfg .snowflake .pgpass .my.cnf .s3cfg .boto
.terraform.d/credentials.tfrc.json .vault-token .cargo/credentials .cargo/credentials.toml .gem/credentials
.npmrc .yarnrc.yml .m2/settings.xml .gradle/gradle.properties .streamlit/secrets.toml .oci .config/doctl .config/hub
.bash_history .zsh_history .python_history .node_repl_history .psql_history .mysql_history .sqlite_history
.ipython/profile_default/history.sqlite .ipython/profile_default/history.sqlite-wal
.local/share/jupyter/runtime Library/Jupyter/runtime .claude/.credentials.json .codex/auth.json
.mozilla .thunderbird .config/google-chrome .config/chromium .config/BraveSoftware .config/microsoft-edge
.config/vivaldi .config/opera snap/firefox .var/app/org.mozilla.firefox
Library/Keychains Library/Cookies Library/Safari Library/Mail Library/Messages
Library/Application\\ Support/Google/Chrome Library/Application\\ Support/Firefox
Library/Application\\ Support/BraveSoftware Library/Application\\ Support/Microsoft\\ Edge
"""
"""In the home folder: keys, tokens, keyrings, browsers' profiles, what was typed, and the keys of running kernels."""
SYSTEM = ("/etc/shadow", "/etc/gshadow", "/etc/sudoers.d", "/etc/ssl/private", "/etc/krb5.keytab")
_MOST = 2_000
"""Entries of a folder looked at for `.env` files."""
_SECONDS = 10
"""How long what was found holds."""


def secrets_of(home: Path, root: Path, more: tuple[str, ...] = ()) -> tuple[Path, ...]:
    """The existing ones, resolved, outermost only: those above and `more`, our own folder, and the files `.env` of
    folders around the project and right below the home folder. What lies in the project is its own affair, unless it
    is one of the first."""
    moment = int(time.monotonic() / _SECONDS)
    own, runtime = (os.environ.get(name, "") for name in ("IPYAGENT_HOME", "JUPYTER_RUNTIME_DIR"))
    return _secrets(home, root, more, own, runtime, moment)


@lru_cache(maxsize=4)
def _secrets(home: Path, root: Path, more: tuple[str, ...], own: str, runtime: str, moment: int) -> tuple[Path, ...]:
    import shlex

    named = [home / each for each in shlex.split(HOME)]
    named += [Path(each) for each in SYSTEM]
    named += [Path(own).expanduser() if own else home / ".ipyagent", *([Path(runtime)] if runtime else [])]
    named += [Path(each).expanduser() if each[:1] in "~/" else home / each for each in more if each.strip()]
    found = {path.resolve() for path in named if os.path.lexists(path)}
    around = [home, *_folders(home), *root.parents, *_folders(root.parent)]
    for folder in dict.fromkeys(around):
        if folder != root and not folder.is_relative_to(root):
            found.update(_environments(folder))
    # the project itself, or a folder around it, cannot be hidden from its commands
    kept = sorted(path for path in found if path.exists() and not root.is_relative_to(path))
    outermost: list[Path] = []
    for path in kept:
        if not outermost or not path.is_relative_to(outermost[-1]):
            outermost.append(path)
    return tuple(outermost)


def _folders(place: Path) -> list[Path]:
    try:
        with os.scandir(place) as entries:
            found = [Path(entry.path) for _, entry in zip(range(_MOST), entries, strict=False) if entry.is_dir()]
    except OSError:
        return []
    return found


def _environments(folder: Path) -> list[Path]:
    names = (".env", ".env.local", ".env.production", ".env.development", ".envrc")
    return [path.resolve() for name in names if (path := folder / name).is_file()]
