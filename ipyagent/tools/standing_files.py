"""Files that take effect later, without anybody's asking: agents obey them, or a program runs them by itself (git, a
shell, Python, an editor, CI, a build). Mode auto asks before one is written: what stands there stays in force after
the session, and may have come from a page that the model read.

This is the one list. A name is compared as the file system that tells least apart would (`same_file_name`); `*` stands
for any letters.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import Path

from ipyagent.tools.paths import same_file_name

FILES = {
    "which agents obey": """
        AGENTS.md AGENTS.override.md AGENT.md AGENT.local.md CLAUDE.md CLAUDE.local.md GEMINI.md QWEN.md WARP.md
        SKILL.md .cursorrules .windsurfrules .clinerules .roorules .goosehints .rules copilot-instructions.md
        .aider.conf.yml .mcp.json mcp.json""",
    "which Python runs or obeys by itself": """
        conftest.py sitecustomize.py usercustomize.py *.pth .pdbrc .pythonrc .pythonrc.py pytest.ini .pytest.ini tox.ini
        noxfile.py setup.py setup.cfg pyproject.toml .coveragerc""",
    "which IPython or Jupyter runs by itself": """
        ipython_config.py ipython_kernel_config.py jupyter_*config.py jupyter_*config.json kernel.json""",
    "which git runs or obeys by itself": """
        .gitattributes .gitmodules .gitconfig .hgrc .pre-commit-config.yaml .pre-commit-config.yml
        .pre-commit-hooks.yaml lefthook.yml lefthook.yaml .lefthook.yml .lintstagedrc* lint-staged.config.*""",
    "which CI runs by itself": """
        .gitlab-ci.yml .travis.yml azure-pipelines.yml bitbucket-pipelines.yml .drone.yml appveyor.yml .appveyor.yml
        .cirrus.yml Jenkinsfile""",
    "which a shell runs by itself": """
        .bashrc .bash_profile .bash_login .bash_logout .bash_aliases .profile .zshrc .zshenv .zprofile .zlogin .zlogout
        .kshrc .mkshrc .cshrc .tcshrc .login .logout .inputrc .envrc .env .env.local .autoenv .xinitrc .xprofile
        .xsession .xsessionrc .pam_environment mise.toml .mise.toml .tool-versions config.fish
        profile.ps1 Microsoft.PowerShell_profile.ps1""",
    "which an editor or a debugger runs by itself": """
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
    "which git runs or obeys by itself": ".git .husky .githooks .config/git .hg",
    "which CI runs by itself": ".github .circleci .buildkite .woodpecker .forgejo .gitea .gitlab",
    "which an editor runs by itself": ".vscode .idea .zed .fleet .devcontainer .vim .emacs.d .config/nvim",
    "which IPython or Jupyter runs by itself": ".ipython profile_*/startup .jupyter jupyter_*config.d",
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
_HOME = re.compile(r"(?:~|\$HOME|\$\{HOME\})(?=/|$)")


def in_force(target: str, folder: Path) -> str:
    """Why a write to `target`, as code or a command in `folder` names it, needs a yes in mode auto ("it writes
    AGENTS.md, which agents obey"); "" when it does not."""
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
    return ""


def _why(name: str, table: dict[str, str]) -> str:
    return table.get(name) or next(why for like, why in table.items() if fnmatchcase(name, like))
