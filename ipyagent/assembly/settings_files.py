"""Settings in files: `config.toml` in the user's own folder, and in a project's `.ipyagent/` once it is trusted.

The user's file may set everything. A project's file comes before it, but it may only tune how the agent works
there: what sends data elsewhere, spends more, grants rights, moves memory, or turns on what the user has turned
off is not a project's to say, and each such line is named once. A file says a setting's value, `name = value`.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ipyagent.config import RENAMED, IPyAgent, is_renamed, names_file, setting_names
from ipyagent.nofollow import FOLDER, LINK
from ipyagent.project import Project
from ipyagent.trust import read_small

NAME = "config.toml"
MOST_BYTES = 100_000
MOST_LINES = 5
"""Lines about one file that are shown."""
_ELSEWHERE = "a project cannot change the server"
_RIGHTS = "a project cannot change permissions"
_MEMORY = "a project cannot move memory"
_MONEY = "a project cannot change spending limits"
NOT_FOR_PROJECTS: Mapping[str, str] = {
    "base_url": _ELSEWHERE,
    "provider": _ELSEWHERE,
    "mode": _RIGHTS,
    "allowed_folders": _RIGHTS,
    "trust_all": _RIGHTS,
    "server_tools": "a project cannot turn on the provider's searches",
    "redact_secrets": "a project cannot turn off the masking of secrets",
    "project": "a project cannot choose its own folder",
    "backup_mb": "how much is copied for undo is yours to say",
    "memory_dir": _MEMORY,
    "memory_per_worktree": _MEMORY,
    "max_cost": _MONEY,
    "max_cost_per_day": _MONEY,
    "price": "a project cannot set prices",
    "max_turns": _MONEY,
    "rerun": _MONEY,
    "subagents_at_once": _MONEY,
    "subagent_turns": _MONEY,
    "subagent_progress": _MONEY,
    "without": "a project cannot change which parts you leave out",
}
"""Settings that a project's file may not say, and why."""
ONLY_OFF = frozenset((
    "memory", "recall", "recall_selector", "extraction", "dreaming", "instructions", "skills", "thinking", "mcp",
    "subagents", "messages",
))  # fmt: skip
"""Switches that a project's file may turn off, never on."""
FOR_PROJECTS = frozenset((
    "model", "small_model", "effort", "max_output", "window", "auto_compact_percent", "reserve_tokens", "auto_buffer",
    "warning_buffer", "error_buffer", "block_buffer", "prompt_cache", "cache_ttl", "max_retries", "max_retry_wait",
    "request_timeout", "tool_output_chars", "live_output_chars", "shell_timeout", "engine", "layer_store_results",
    "layer_clear_results", "layer_server_edits", "layer_collapse", "layer_notes", "layer_server_compaction",
    "layer_summarize", "layer_reactive", "store_chars", "store_message_chars", "whole_chars", "live_objects",
    "live_objects_mb", "preview_chars", "clear_policy", "clear_keep", "clear_chars", "clear_idle_minutes",
    "clear_idle_keep", "server_clear_trigger", "server_clear_at_least", "notes_start", "notes_step", "notes_calls",
    "notes_section_tokens", "notes_tokens", "keep_tokens", "keep_messages", "keep_most_tokens", "keep_user_tokens",
    "restore_files", "restore_file_tokens", "restore_tokens", "compact_failures", "compact_thrash_turns",
    "collapse_percent", "plan_wait", "recall_when", "recall_files", "recall_bytes", "extract_every", "extract_turns",
    "extract_messages", "extract_words", "extract_cues", "extract_quiet_minutes", "extract_end_seconds",
    "extract_from", "extract_answer_chars", "extract_line_chars", "extract_tokens", "background_percent",
    "recall_selector_from",
    "dream_hours", "dream_sessions", "mcp_timeout", "mcp_startup_timeout", "mcp_wait", "mcp_inline_tools",
    "mcp_inline_percent", "subagent_silence", "panels", "memory_guidelines",
))  # fmt: skip
"""Settings that tune the work; every setting stands in one of the three lists."""


class SettingsFiles:
    """The settings files of a user and a project, for one settings object."""

    def __init__(self, settings: IPyAgent, project: Project) -> None:
        self._settings = settings
        self._project = project

    def __repr__(self) -> str:
        return f"<SettingsFiles of {self._project.root.name}>"

    def apply(self) -> list[str]:
        """Have the files hold as they are now, and those of before no more; a line for each thing that cannot."""
        settings, project = self._settings, self._project
        settings.forget_files()
        lines = self._take(project.user / NAME, mine=True)
        if settings.trust_all or project.trusted:
            lines += self._take(project.folder / NAME, mine=False)
        return lines

    def _take(self, path: Path, *, mine: bool) -> list[str]:
        shown = str(path) if mine else f"{FOLDER}/{NAME}"
        if not mine and path.is_symlink():
            return [f"{shown}: it {LINK}"]
        values, problem = read_settings(path)
        lines = [] if mine or problem or self._settings.trust_all else self._project.arrivals([path])
        problems = [problem] if problem else []
        for name, value in values.items():
            if name in RENAMED:
                problems.append(f"{name} {is_renamed(name)}")
                name = RENAMED[name]
            why = _unknown(name) or ("" if mine else self._refused(name, value))
            if why or (why := self._settings.take_from_file(name, value)):
                problems.append(why)
        if len(problems) > MOST_LINES:
            problems[MOST_LINES - 1 :] = [f"and {len(problems) - MOST_LINES + 1} more things like these"]
        return [*lines, *(f"{shown}: {why}" for why in problems)]

    def _refused(self, name: str, value: Any) -> str:
        """Why a project may not say this; "" when it may."""
        where = f"set it in {self._project.user / NAME} or with %config IPyAgent.{name}"
        if name in NOT_FOR_PROJECTS:
            return f"{name} is ignored: {NOT_FOR_PROJECTS[name]}; {where}"
        if name in ONLY_OFF:
            return f"{name} is ignored: a project can only turn it off; {where}" if value is not False else ""
        if name in ("model", "small_model") and str(value).strip().lower().startswith("local:"):
            return f"{name} is ignored: a project cannot choose a model file; {where}"
        if name == "memory_guidelines" and names_file(str(value)) and not _is_inside(str(value)):
            return f"{name} is ignored: a project's guidelines must be in the project; {where}"
        return "" if name in FOR_PROJECTS else f"{name} is ignored: a project cannot set it; {where}"


def _is_inside(path: str) -> bool:
    """Whether a path is relative and leads nowhere else; links are looked at when it is read."""
    parts = path.strip().replace("\\", "/").split("/")
    return not path.strip().startswith(("/", "~")) and ".." not in parts and ":" not in parts[0]


def read_settings(path: Path) -> tuple[dict[str, Any], str]:
    """The names and values of a settings file, and what is wrong with it as a whole ("" for nothing)."""
    source = path if not path.is_symlink() else path.resolve()
    data = read_small(source, MOST_BYTES + 1)
    if data is None:
        return {}, "is not a readable file" if path.exists() else ""
    if len(data) > MOST_BYTES:
        return {}, f"is larger than {MOST_BYTES:,} bytes and was not read"
    try:
        return tomllib.loads(data.decode("utf-8-sig").replace("\r\n", "\n")), ""
    except (ValueError, RecursionError) as problem:  # not TOML, not UTF-8, a number without end, nested without end
        why = "nested too deeply" if isinstance(problem, RecursionError) else " ".join(str(problem).split())[:200]
        return {}, f"is not valid TOML and was not read: {why}"


def _unknown(name: str) -> str:
    known = setting_names()
    if name in known:
        return ""
    close = difflib.get_close_matches(name, known, n=1)
    shown = name if name.isprintable() and len(name) <= 60 else repr(name)[:60]
    return f"no setting {shown}" + (f"; did you mean {close[0]}?" if close else "; %config IPyAgent lists them")
