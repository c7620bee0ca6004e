"""Settings in files, and from the settings to what each part takes.

Files are `config.toml` in the user's own folder, which may set everything, and in a project's `.ipyagent/` once it is
trusted. The project's file comes first, but it may only tune how the agent works there: what sends data elsewhere,
spends more, grants rights, moves memory, or turns on what the user has turned off is not a project's to say, and each
such line is named once. A file says a setting's value, `name = value`.
"""

from __future__ import annotations

import atexit
import difflib
import os
import threading
import tomllib
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from ipyagent.assembly.requests import Options
from ipyagent.config import DEFAULT_MODEL, RENAMED, IPyAgent, is_renamed, names_file, setting_names
from ipyagent.context.thresholds import message_chars, preview_chars, result_chars, window_state
from ipyagent.journal.protocols import ModelInfo, WindowState
from ipyagent.loop.session import Limits, Session
from ipyagent.model.capabilities import resolve
from ipyagent.model.client import AnthropicModel
from ipyagent.model.client_pool import Connections
from ipyagent.model.endpoint import Endpoint, base_of
from ipyagent.model.prices import cheapest_of, told_prices
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
    "backup_mb": "a project cannot change how much is copied for undo",
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


USUAL_OUTPUT = 32_000
"""Largest reply in tokens that is asked for unless the setting says otherwise."""


def model_of(settings: IPyAgent) -> str:
    """The model's name: the setting, ANTHROPIC_MODEL, the only one that the server was found to have, or the
    default."""
    return named_model(settings) or settings.served.get(address_of(settings), "") or DEFAULT_MODEL


def named_model(settings: IPyAgent) -> str:
    """The model that the user named; "" for none."""
    return settings.model or os.environ.get("ANTHROPIC_MODEL", "")


def address_of(settings: IPyAgent) -> str:
    """The server that was chosen; "" for the SDK's own choice."""
    return settings.base_url or os.environ.get("ANTHROPIC_BASE_URL", "")


async def find_model(settings: IPyAgent, model: AnthropicModel) -> str:
    """Have `model_of` know the only model of a server that was chosen without a model; a line for the user when
    that is new."""
    address = address_of(settings)
    if not address or named_model(settings) or address in settings.served:
        return ""
    only = await model.only_model(DEFAULT_MODEL)
    if not only:
        return ""
    settings.served[address] = only
    return f"using the server's only model: {only} (choose another with %agent model NAME)"


def small_model_of(settings: IPyAgent) -> str:
    """The model for small jobs: the setting, or the cheapest of the main model's family, but the main model where the
    server was found not to have that; "" when there is none."""
    main = model_of(settings)
    small = settings.small_model or cheapest_of(main)
    return main if (address_of(settings), small) in settings.missing else small


def without_small(settings: IPyAgent, name: str) -> str:
    """Have the main model do the small jobs from now on, for the server does not have `name`; a line for the user, ""
    where no other model stands in."""
    if name != small_model_of(settings) or name == model_of(settings):
        return ""
    settings.missing.add((address_of(settings), name))
    main = model_of(settings)
    return (
        f"the server has no {name} (small_model), so {main} is used for small jobs; to use another, set "
        "IPyAgent.small_model"
    )


def info_of(settings: IPyAgent, connections: Connections, session: Session | None) -> ModelInfo:
    """The model that the next request goes to, without a word with the server: what was known of it when it was last
    used in this kernel or in the session, else the figures of our table."""
    name, address = model_of(settings), address_of(settings)
    if address and not named_model(settings) and address not in settings.served and session is not None:
        name = session.info.model or name  # what that server was found to have in an earlier kernel
    if (known := connections.known(name, endpoint_of(settings))) is not None:
        return known
    told = session.info if session is not None and session.info.model == name else None
    if told is not None and told.server and address and told.server not in (address, base_of(address)):
        told = None  # another server's word
    return resolve(name, told, setting=settings.window, environ=os.environ)


def endpoint_of(settings: IPyAgent) -> Endpoint:
    """Where requests go."""
    return Endpoint(
        base_url=settings.base_url,
        provider=settings.provider,
        timeout=settings.request_timeout,
        retries=settings.max_retries,
        longest_wait=settings.max_retry_wait,
        thinking=settings.thinking,
        window=settings.window,
    )


def limits_of(settings: IPyAgent, options: Options, info: ModelInfo) -> Limits:
    """The numbers one turn keeps to, and from here on the prices that the user sets."""
    told_prices.set(settings.price)
    return Limits(
        max_turns=options.max_turns or settings.max_turns,
        max_tokens=settings.max_output or min(info.max_output, USUAL_OUTPUT),
        effort=options.effort or settings.effort,
        prompt_cache=settings.prompt_cache,
        cache_ttl=settings.cache_ttl,
        max_cost=settings.max_cost,
        max_cost_per_day=settings.max_cost_per_day,
    )


def limit_of(settings: IPyAgent, name: str, window: int = 0) -> int:
    """A number that tools keep to, in a window of `window` tokens (0: not known). While large results are
    kept in files, tools give them whole; `store_chars` is then where files begin."""
    if name == "tool_output_chars":
        if settings.layer_store_results:
            return max(settings.whole_chars, settings.tool_output_chars)
        return message_chars(settings.tool_output_chars, window)
    if name == "store_chars":
        return result_chars(min(settings.store_chars, settings.tool_output_chars), window)
    if name == "preview_chars":
        return preview_chars(settings.preview_chars, window)
    return int(getattr(settings, name))


def state_of(settings: IPyAgent, info: ModelInfo, tokens: int) -> WindowState:
    """Where the window stands at `tokens` tokens of prompt."""
    return window_state(
        tokens,
        info.window,
        info.max_output,
        reserve=settings.reserve_tokens,
        auto_buffer=settings.auto_buffer,
        warning_buffer=settings.warning_buffer,
        error_buffer=settings.error_buffer,
        block_buffer=settings.block_buffer,
        auto_percent=settings.auto_compact_percent,
    )


# ---- What is to be done when the process ends, while threads and sockets can still be begun: atexit comes too
# late.

T = TypeVar("T")


def at_exit(owner: T, end: Callable[[T], object]) -> None:
    """Call `end(owner)` when this process ends, unless the owner is gone by then; Ctrl-C ends it."""
    known, process = weakref.ref(owner), os.getpid()

    def run() -> None:
        found = known()
        if found is not None and os.getpid() == process:
            try:
                end(found)
            except KeyboardInterrupt:
                return  # the user does not want to wait: it has ended

    register: Callable[[Callable[[], None]], object] = getattr(threading, "_register_atexit", atexit.register)
    try:
        register(run)
    except RuntimeError:
        return  # the process ends already
