"""Every setting, each with one name: `%config IPyAgent`, `c.IPyAgent.x` in IPython's configuration, the
environment variable `IPYAGENT_X` (read once, when the object is made; JSON or plain text), or a settings file.

What is said in this process (given to `IPyAgent`, `%config`, IPython's configuration) comes before the
environment, this before the settings files (`ipyagent.assembly.settings`), these before the defaults.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Mapping
from typing import Any

import traitlets
from traitlets import Bool, Dict, Enum, Float, Int, List, TraitError, TraitType, Unicode, validate
from traitlets.config import Configurable

from ipyagent.errors import SettingError

DEFAULT_MODEL = "claude-sonnet-5-5"
_EACH = ("max_uses", "allowed_domains", "blocked_domains")
SERVER_TOOLS: Mapping[str, tuple[str, ...]] = {
    "web_search": (*_EACH, "user_location"),
    "web_fetch": (*_EACH, "max_content_tokens", "citations"),
}
"""Tools that the provider runs, and their options as the Messages API names them."""
MODES = ("ask", "auto", "read_only")


def _old_name(new: str) -> traitlets.Any:
    """The trait of a setting's former name, which holds for one release: it warns and sets the new one."""
    return traitlets.Any(help=f"The old name of `{new}`.").tag(renamed=new)


class IPyAgent(Configurable):
    """The settings of ipyagent; `%config IPyAgent` lists them with their help.

    `IPyAgent(mode="auto")` sets some in a script. Raises SettingError for an unknown name or a wrong value.
    """

    model = Unicode(
        "",
        help="Model id, `practice`, or `local:PATH.gguf`; empty: ANTHROPIC_MODEL, a server's only model, or "
        f"{DEFAULT_MODEL}.",
    )
    project = Unicode(
        "", help="Folder that holds the project's state in `.ipyagent/`; empty: found from the notebook's folder."
    )
    small_model = Unicode(
        "", help="Model for small jobs; empty: the cheapest of the family, or `model` where the server lacks it."
    )
    base_url = Unicode("", help="Address of a Messages API server, without /v1; empty: ANTHROPIC_BASE_URL.")
    provider = Enum(("anthropic", "bedrock", "vertex"), "anthropic", help="Which client of the Anthropic SDK to use.")
    effort = Enum(
        ("", "low", "medium", "high", "xhigh", "max"), "", help="Reasoning effort; empty: the model's default."
    )
    mode = Enum(
        MODES,
        "ask",
        help="Permissions: ask (before all code and changes), auto (most code runs, and commands change and delete "
        "files of the project; asks before Python code deletes something, reaches a new host or starts a program, "
        "before a command leaves the project or needs the network, and before what undo could not restore) or "
        "read_only.",
    )
    server_tools: List[Any] = List(
        help="Tools that the provider runs: web_search ($10 for 1,000 searches) and web_fetch, by name or as "
        '{"name": "web_search", "max_uses": 3, "allowed_domains": ["example.org"]}; empty: none.'
    )
    max_turns = Int(50, min=1, help="Maximum number of model calls in one request; then it ends as `limit`.")
    max_output = Int(0, min=0, help="Largest reply in tokens; 0: the model's own largest, at most 32,000.")
    max_cost = Float(
        0.0, min=0.0, help="US dollars that one request may cost before it pauses and asks you; 0: no limit."
    )
    max_cost_per_day = Float(0.0, min=0.0, help="US dollars that all sessions together may cost a day; 0: no limit.")
    price = Dict(
        value_trait=List(Float(min=0.0), minlen=2, maxlen=4),
        key_trait=Unicode(),
        help="US dollars a million tokens, by a model's name: in and out, and of cache reads and writes where they "
        'are known, as in {"qwen3": [0.5, 2.0]}; before what a server tells and what is known.',
    )
    rerun = Enum(
        ("auto", "replay", "answer", "always"),
        "auto",
        help="What an unchanged %%agent cell does: replay (its recorded code runs again, without the model), answer "
        "(the stored answer is shown, nothing runs), always (the model is asked again); auto: in a live front-end "
        "replay, once after each kernel start, else always.",
    )
    panels = Enum(
        ("auto", "widgets", "static"),
        "auto",
        help="How a turn is shown while it runs: a widget, or static output rewritten each second (auto: in Colab).",
    )
    window = Int(
        0,
        min=0,
        help="Context window in tokens; 0: what the server says, else what is known of the model, else 200,000.",
    )
    auto_compact_percent = Int(
        0, min=0, max=100, help="Lower the auto-compact threshold to this percentage of the window; 0: the default."
    )
    reserve_tokens = Int(20_000, min=0, help="Tokens of the window kept free for a summary.")
    auto_buffer = Int(13_000, min=0, help="Tokens from the effective window down to the auto-compact threshold.")
    warning_buffer = Int(20_000, min=0, help="Tokens from the auto-compact threshold down to the warning threshold.")
    error_buffer = Int(20_000, min=0, help="Tokens from the auto-compact threshold down to the error threshold.")
    block_buffer = Int(3_000, min=0, help="Tokens from the effective window down to the hard limit.")
    prompt_cache = Bool(True, help="Put cache breakpoints on requests.")
    cache_ttl = Enum(("5m", "1h"), "5m", help="How long the provider keeps a cached prefix.")
    thinking = Bool(True, help="Let models think if they can.")
    max_retries = Int(4, min=0, help="How often a request is retried when the server is busy, failing or unreachable.")
    max_retry_wait = Float(60.0, min=0.0, help="Longest wait in seconds before a retry, whatever the server says.")
    request_timeout = Float(600.0, min=0.1, help="Seconds of silence from the server before a request counts as lost.")
    tool_output_chars = Int(25_000, min=500, help="Maximum characters of one tool result that reach the model.")
    live_output_chars = Int(200_000, min=1_000, help="Maximum characters of one tool call's output shown live.")
    shell_timeout = Int(120, min=1, help="Seconds a shell command may run unless the call says otherwise.")
    redact_secrets = Bool(
        True, help="Mask what looks like a secret in results, attachments and messages before the model gets them."
    )
    backup_mb = Int(
        100, min=0, help="Largest file in MB of which undo keeps a copy before code changes it; larger: asked."
    )
    allowed_folders = List(Unicode(), help="More folders that the agent may read without asking.")
    engine = Enum(
        ("client", "server", "auto"),
        "client",
        help="Who compacts the context: client (ipyagent), server (the provider), auto (the provider if it can).",
    )
    layer_store_results = Bool(True, help="Keep large tool results in files, with a preview in the context.")
    layer_clear_results = Bool(True, help="Clear old results of tools that can run again (tool-result clearing).")
    layer_server_edits = Bool(True, help="Let the provider clear old tool results where it can.")
    layer_collapse = Bool(False, help="Replace finished sub-tasks by short summaries near the window's end.")
    layer_notes = Bool(True, help="Keep session notes in the background and use them as the summary.")
    layer_server_compaction = Bool(True, help="Let the provider compact the context if `engine` says so.")
    layer_summarize = Bool(True, help="Summarise the conversation at the auto-compact threshold.")
    layer_reactive = Bool(True, help="Compact and try once more when the server says the prompt is too long.")
    store_chars = Int(
        25_000,
        min=200,
        help="Size from which a tool result is kept in a file, in characters of English prose (2.9 per token).",
    )
    store_message_chars = Int(
        200_000, min=200, help="The same for all results of one message together, counted like `store_chars`."
    )
    whole_chars = Int(
        4_000_000, min=1_000, help="Maximum characters kept of one stored result; longer ones are cut in the middle."
    )
    live_objects = Int(
        20, min=0, help="Maximum number of objects of stored results that stay available under `_agent`."
    )
    live_objects_mb = Int(1_000, min=0, help="Maximum megabytes of objects that stay available under `_agent`.")
    preview_chars = Int(2_000, min=100, help="Size of a stored result's preview, counted like `store_chars`.")
    clear_policy = Enum(
        ("economic", "every_turn"), "economic", help="Clear old tool results when it pays, or before every request."
    )
    clear_keep = Int(3, min=0, help="Newest tool results that clearing by count never takes.")
    clear_chars = Int(100, min=0, help="Results up to this many characters are not worth clearing.")
    clear_idle_minutes = Float(60.0, min=0.0, help="Minutes of silence after which the provider's cache is cold.")
    clear_idle_keep = Int(5, min=1, help="Newest tool results kept when the cache is cold.")
    server_clear_trigger = Int(180_000, min=0, help="Input tokens at which the server clears results.")
    server_clear_at_least = Int(140_000, min=0, help="Minimum tokens that the server clears at once.")
    notes_start = Int(10_000, min=100, help="Tokens of conversation before session notes are first written.")
    notes_step = Int(5_000, min=100, help="Tokens of conversation between two updates of the session notes.")
    notes_calls = Int(3, min=0, help="Tool calls since the last notes before an update is due.")
    notes_section_tokens = Int(2_000, min=100, help="Maximum tokens in one section of the session notes.")
    notes_tokens = Int(12_000, min=500, help="Maximum tokens in all session notes.")
    keep_tokens = Int(10_000, min=0, help="Minimum tokens of the newest conversation kept verbatim after the notes.")
    keep_messages = Int(5, min=0, help="Minimum number of messages with text kept verbatim after the notes.")
    keep_user_tokens = Int(
        20_000, min=0, help="Maximum tokens of your own messages kept word for word beside a summary or notes."
    )
    keep_most_tokens = Int(
        40_000, min=0, help="Maximum tokens of the newest conversation kept verbatim after the notes."
    )
    restore_files = Int(5, min=0, help="Maximum number of files, recently read, that are restored after a compaction.")
    restore_file_tokens = Int(5_000, min=0, help="Maximum tokens of one restored file.")
    restore_tokens = Int(50_000, min=0, help="Maximum tokens of all restored files.")
    compact_failures = Int(3, min=1, help="Failures in a row after which automatic compaction stops.")
    compact_thrash_turns = Int(3, min=0, help="Turns within which a second automatic compaction is refused.")
    collapse_percent = Int(90, min=1, max=100, help="Percent of the effective window at which sub-tasks collapse.")
    memory = Bool(True, help="Use memory; off: nothing is loaded, recalled, extracted or tidied.")
    memory_dir = Unicode("", help="Folder of the project memory; empty: .ipyagent/memory of the project.")
    memory_per_worktree = Bool(False, help="Give each git worktree a memory of its own.")
    memory_guidelines = Unicode(
        "", help="Guidelines (a team's policy) that join the memory section: text, or the path of a .md or .txt file."
    )
    recall = Bool(True, help="Recall the memories that fit each request.")
    recall_when = Enum(
        ("beside", "before"),
        "beside",
        help="beside: while the model works, shown with its next call; before: the request waits, at most 3 s.",
    )
    recall_selector = Bool(True, help="Let the small model choose among candidates; off: full-text ranking alone.")
    recall_files = Int(5, min=0, help="Maximum number of memories shown for one request.")
    recall_bytes = Int(60_000, min=0, help="Maximum bytes of memories shown in one session.")
    recall_selector_from = Int(
        6, min=1, help="Memories not yet shown before the small model chooses; among fewer, full-text ranking does."
    )
    extraction = Bool(True, help="Look for new memories in the background after a turn.")
    extract_every = Int(1, min=1, help="Turns between two extractions.")
    extract_turns = Int(5, min=1, help="Maximum number of model calls in one extraction.")
    extract_words = Int(150, min=0, help="New words from you that start an extraction if no cue does (0: every turn).")
    extract_cues = List(Unicode(), help="More words, in any language, that start an extraction as soon as you use one.")
    extract_quiet_minutes = Float(
        10.0,
        min=0.0,
        help="Minutes without a request after which a waiting extraction runs (0: never for this reason).",
    )
    extract_end_seconds = Float(
        10.0, min=0.0, help="Seconds that the kernel waits at its end for a last extraction (0: it does not wait)."
    )
    extract_from = Enum(
        ("cheapest", "conversation", "transcript"),
        "cheapest",
        help="What an extraction reads: the conversation (cached, main model), a transcript (small model), or what is "
        "cheapest.",
    )
    extract_messages = Int(
        40,
        min=2,
        help="Maximum number of messages that an extraction reads in the conversation; for more, it reads "
        "a transcript.",
    )
    extract_answer_chars = Int(
        600, min=40, help="Maximum characters of one answer in the transcript that an extraction reads."
    )
    extract_line_chars = Int(
        160, min=20, help="Maximum characters of one tool call, and of its result, in that transcript."
    )
    extract_tokens = Int(20_000, min=500, help="Maximum tokens of a transcript that one extraction reads.")
    background_percent = Float(
        15.0,
        min=0.0,
        max=100.0,
        help="Percent of the cost that background work may take before an extraction is put off to its last occasion.",
    )
    dreaming = Bool(True, help="Tidy the memory in the background, once a day at most.")
    dream_hours = Float(24.0, min=0.0, help="Hours between two dreams, which tidy the memory.")
    dream_sessions = Int(5, min=1, help="Sessions used since the last dream before the next one is due.")
    instructions = Bool(True, help="Load instruction files (AGENTS.md, CLAUDE.md, AGENT.md, rules).")
    skills = Bool(True, help="Offer skills (folders with a SKILL.md) to the model.")
    subagents = Bool(True, help="Let the model start sub-agents.")
    subagents_at_once = Int(8, min=1, help="Sub-agents that work at the same time; more wait for their turn.")
    subagent_turns = Int(30, min=1, help="Maximum number of model calls of one sub-agent.")
    subagent_silence = Float(
        900.0, min=0.0, help="Seconds without a sign of work after which a sub-agent is stopped (0: never)."
    )
    subagent_progress = Float(30.0, min=0.0, help="Seconds between two progress lines of a sub-agent (0: none).")
    children = _old_name("subagents")
    children_at_once = _old_name("subagents_at_once")
    child_turns = _old_name("subagent_turns")
    child_silence = _old_name("subagent_silence")
    child_progress = _old_name("subagent_progress")
    messages = Bool(True, help="Let sub-agents, and sessions of one project, send one another messages.")
    plan_wait = Float(600.0, min=0.1, help="Seconds a sub-agent waits for the answer to its plan.")
    mcp = Bool(True, help="Offer the tools of MCP servers (mcp.json) to the model.")
    mcp_timeout = Float(60.0, min=0.1, help="Seconds an MCP server may be silent in a call.")
    mcp_startup_timeout = Float(60.0, min=0.1, help="Seconds an MCP server may take to start.")
    mcp_wait = Float(15.0, min=0.0, help="Seconds a request waits for MCP servers that start.")
    mcp_inline_tools = Int(
        20, min=0, help="Maximum number of MCP tools listed to the model; if there are more, it searches for them."
    )
    mcp_inline_percent = Float(
        5.0, min=0.0, help="Percent of the window that MCP tools may take before the model searches for them instead."
    )
    without = List(
        Unicode(),
        help="Parts of the agent to leave out, by name: memory, skills, subagents, shell, …, or another package's.",
    )
    trust_all = Bool(False, help="Trust every folder without asking (for tests and containers).")

    def __init__(self, environ: Mapping[str, str] | None = None, **kwargs: Any) -> None:
        known = [*setting_names(), "parent", "config"]
        for name in list(kwargs):
            if name in RENAMED:
                kwargs[_renamed(name)] = kwargs.pop(name)
            elif name not in known:
                from difflib import get_close_matches  # loading needs it not

                close = get_close_matches(name, known, n=1)
                then = f"did you mean {close[0]}?" if close else "%config IPyAgent lists them"
                raise SettingError(f"no setting {name!r}; {then}")
        try:
            super().__init__(**kwargs)
        except TraitError as problem:
            if kwargs.keys() <= {"parent", "config"}:
                raise  # from a configuration file
            raise SettingError(" ".join(str(problem).split())) from None
        given = os.environ if environ is None else environ
        configured = dict(self.config.get(type(self).__name__, {}))
        for name in RENAMED.keys() & configured.keys():
            configured[_renamed(name)] = configured.pop(name)
            setattr(self, RENAMED[name], configured[RENAMED[name]])
        self.said: set[str] = {*kwargs, *configured}
        """Settings that were said in this process or in the environment: files have no say in them."""
        self.served: dict[str, str] = {}
        """By address, the only model of a server that was chosen without a model."""
        self.missing: set[tuple[str, str]] = set()
        """Addresses of servers, and small models that they were found not to have."""
        self._from_files: set[str] = set()
        self._reading = False
        for variable in setting_names(old=True):
            text = given.get("IPYAGENT_" + variable.upper())
            name = variable if text is None or variable not in RENAMED else _renamed(variable)
            if text is None or name in kwargs or name in configured:
                continue
            trait = self.traits()[name]
            try:
                setattr(self, name, _parse(text, trait))
            except (TraitError, ValueError, RecursionError):
                raise SettingError(
                    f"IPYAGENT_{variable.upper()}={text[:80]!r} should be {_wanted(trait)} "
                    f"({str(trait.help).rstrip('.')}); set it again or unset it"
                ) from None
            self.said.add(name)
        self._outside = frozenset(self.said)
        self.observe(self._on_change)

    @property
    def model_words(self) -> str:
        """Which model requests go to, as far as that is known without asking anybody: "claude-sonnet-5-5", "the only
        model of http://localhost:11434"."""
        address = self.base_url or os.environ.get("ANTHROPIC_BASE_URL", "")
        name = self.model or os.environ.get("ANTHROPIC_MODEL", "") or self.served.get(address, "")
        return name or (f"the only model of {address}" if address else DEFAULT_MODEL)

    @validate("server_tools")
    def _check_server_tools(self, proposal: Mapping[str, Any]) -> list[dict[str, Any]]:
        """The tools with their options, each a table; raises TraitError."""
        made: list[dict[str, Any]] = []
        for given in proposal["value"]:
            entry = {"name": given} if isinstance(given, str) else given
            name = entry.get("name") if isinstance(entry, dict) else None
            if name not in SERVER_TOOLS:
                raise TraitError(f"server_tools: {given!r} is not one of {', '.join(SERVER_TOOLS)}")
            if any(name == one["name"] for one in made):
                raise TraitError(f"server_tools: {name} is there twice")
            for key, value in entry.items():
                problem = _wrong_option(str(name), key, value)
                if problem:
                    raise TraitError(f"server_tools: {problem}")
            if entry.get("allowed_domains") and entry.get("blocked_domains"):
                raise TraitError(f"server_tools: {name} takes allowed_domains or blocked_domains, not both")
            made.append(dict(entry))
        return made

    def _on_change(self, change: Mapping[str, Any]) -> None:
        name = change["name"]
        if name in RENAMED:
            setattr(self, _renamed(name), change["new"])
        elif not self._reading:
            self.said.add(name)
            self._outside -= {name}

    def from_outside(self, name: str) -> bool:
        """Whether a setting's value is that of the environment or of a configuration file, and no cell said it."""
        return name in self._outside or (name in self._from_files and name not in self.said)

    def forget_files(self) -> None:
        """What settings files said holds no more; what was said otherwise stays."""
        self._reading = True
        try:
            for name in self._from_files - self.said:
                setattr(self, name, self.traits()[name].default(self))
        finally:
            self._reading = False
        self._from_files.clear()

    def take_from_file(self, name: str, value: Any) -> str:
        """A file's value of a setting, unless it was said otherwise; what is wrong with it ("" for nothing)."""
        trait = self.traits()[name]
        if isinstance(value, bool) and not isinstance(trait, Bool):
            return f"{name} cannot be {str(value).lower()}: {trait.help}"
        if name in self.said:
            return ""
        self._reading = True
        try:
            setattr(self, name, value)
        except TraitError as problem:
            return " ".join(str(problem).split())
        finally:
            self._reading = False
        self._from_files.add(name)
        return ""


_SETTINGS = {name: trait.tag(config=True) for name, trait in IPyAgent.class_own_traits().items()}
RENAMED: Mapping[str, str] = {
    name: trait.metadata["renamed"] for name, trait in _SETTINGS.items() if "renamed" in trait.metadata
}
"""New names by the old ones that settings had in the release before."""


def setting_names(*, old: bool = False) -> list[str]:
    """The names of all settings; with `old` also those that have been renamed."""
    return [name for name in _SETTINGS if old or name not in RENAMED]


def _renamed(name: str) -> str:
    """The new name of a setting, with a line for who used the old one."""
    warnings.warn(f"IPyAgent.{name} {is_renamed(name)}", FutureWarning, stacklevel=3)
    return RENAMED[name]


def is_renamed(name: str) -> str:
    """What is to be said of an old name."""
    return f"is now called {RENAMED[name]}; the old name stops working in the next release"


def wrong_in(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables of settings whose values cannot be, and why not."""
    wrong = {}
    for name in setting_names(old=True):
        variable = "IPYAGENT_" + name.upper()
        if variable in environ:
            try:
                IPyAgent({variable: environ[variable]})
            except SettingError as problem:
                wrong[variable] = str(problem)
    return wrong


def _parse(text: str, trait: TraitType[Any, Any]) -> Any:
    """The value that a text stands for. Raises ValueError, RecursionError."""
    if isinstance(trait, (Unicode, Enum)):
        return text
    lowered = text.strip().lower()
    value: Any
    if lowered in ("true", "yes", "on"):
        value = True
    elif lowered in ("false", "no", "off"):
        value = False
    else:
        value = json.loads(text, parse_constant=_no_number)
    if isinstance(value, bool) and not isinstance(trait, Bool):
        raise ValueError(text)
    return value


def _no_number(text: str) -> None:
    """NaN and Infinity, which JSON has not. Raises ValueError."""
    raise ValueError(text)


def _wrong_option(name: str, key: str, value: Any) -> str:
    """What is wrong with an option of a server tool; "" for nothing."""
    match key:
        case "name":
            return ""
        case _ if key not in SERVER_TOOLS[name]:
            return f"{name} has no option {key!r}; it has {', '.join(SERVER_TOOLS[name])}"
        case "max_uses" | "max_content_tokens":
            right, wanted = type(value) is int and value > 0, "a whole number of at least 1"
        case "allowed_domains" | "blocked_domains":
            right = isinstance(value, list) and all(isinstance(each, str) and each for each in value)
            wanted = 'a list of domains like ["example.org"]'
        case "citations":
            right, wanted = isinstance(value, bool), "true or false"
        case _:
            right, wanted = isinstance(value, dict), 'a table like {"type": "approximate", "country": "DE"}'
    return "" if right else f"{key} of {name} should be {wanted}"


def _wanted(trait: TraitType[Any, Any]) -> str:
    """What a value of the trait is, in words."""
    match trait:
        case Bool():
            return "true or false"
        case Enum():
            return f"one of {', '.join(value for value in trait.values or () if value)}"
        case List():
            return 'a list like ["one", "two"]'
        case Dict():
            return 'an object like {"name": [0.5, 2.0]}'
        case Int(min=least, max=most):
            return f"a whole number of at least {least}" if most is None else f"a whole number from {least} to {most}"
        case Float(min=least):
            return f"a number of at least {least:g}"
        case _:
            return "text"


def names_file(text: str) -> bool:
    """Whether a value of the setting `memory_guidelines` is a path: one line that begins with "/", "~/", "./" or "../",
    or one word that ends in .md or .txt."""
    text = text.strip()
    if "\n" in text:
        return False
    return text.startswith(("/", "~/", "./", "../")) or (text.endswith((".md", ".txt")) and not text.split()[1:])
