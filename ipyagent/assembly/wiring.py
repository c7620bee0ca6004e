"""From the settings to what each part takes: one function a part."""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from collections.abc import Callable
from typing import TypeVar

from ipyagent.assembly.requests import Options
from ipyagent.config import DEFAULT_MODEL, IPyAgent
from ipyagent.context.thresholds import message_chars, preview_chars, result_chars, window_state
from ipyagent.journal.protocols import ModelInfo, WindowState
from ipyagent.loop.session import Limits, Session
from ipyagent.model.capabilities import resolve
from ipyagent.model.client import AnthropicModel
from ipyagent.model.connect import Connections
from ipyagent.model.endpoint import Endpoint, base_of
from ipyagent.model.prices import cheapest_of, told_prices

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


def at_exit(owner: T, end: Callable[[T], None]) -> None:
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
