"""Where the window's marks are: one function gives the state that every meter and layer reads.

Each buffer is the smaller of its setting and a fixed share of the window (the setting's share of
200,000 tokens), so that every window from 4K up has its marks, in the right order.
"""

from __future__ import annotations

from ipyagent.errors import WindowTooSmall
from ipyagent.journal.protocols import WindowState
from ipyagent.journal.tokens import PROSE

REFERENCE_WINDOW = 200_000
"""The window that the settings' absolute numbers were chosen for."""


RESULT_SHARE = 0.4
"""Characters (of prose) of one tool result for each token of the window, at most: about a seventh of the window. What
is larger is mostly printed for the user's eyes, and is read again with every request until it is cleared."""
MESSAGE_SHARE = 1.0
"""Characters (of prose) of all results of one message for each token of the window, at most: about a third of it."""
LEAST_CHARS = 200
NOTES_SHARES = {
    "notes_start": 1 / 4,
    "notes_step": 1 / 6,
    "notes_section_tokens": 1 / 16,
    "notes_tokens": 1 / 4,
    "keep_tokens": 1 / 8,
    "keep_most_tokens": 1 / 8,
    "keep_user_tokens": 1 / 10,
}
"""What the session's notes, and the conversation kept behind them, may have of the window at most: a compaction by
notes leaves room to go on, and what it keeps is written to the cache again."""
TIGHT_WINDOW = 40_000
"""Of what a window has more than that, a quarter may be kept behind notes, so that 200,000 tokens leave the setting as
it is; below twice that, a window is soon full again, and an eighth of it is enough."""


def notes_limit(name: str, tokens: int, window: int) -> int:
    """The setting `name` of the notes, `tokens`, cut down to its share of a window of `window` tokens."""
    most = NOTES_SHARES[name] * window
    if name == "keep_most_tokens":
        most = max(most, (window - TIGHT_WINDOW) / 4)
    return min(tokens, max(1, int(most)))


def result_chars(chars: int, window: int) -> int:
    """The setting `chars` for one tool result, cut down to its share of a window of `window` tokens (0:
    not known)."""
    return _within(chars, window, RESULT_SHARE)


def near_threshold(state: WindowState, chars: int) -> bool:
    """Whether one more result, as large as the setting `chars` allows, would reach the auto-compact threshold."""
    return state.tokens + result_tokens(chars, state.window) >= state.auto_mark


def result_tokens(chars: int, window: int) -> int:
    """Tokens of a result as large as `result_chars` allows."""
    return int(result_chars(chars, window) / PROSE)


def message_chars(chars: int, window: int) -> int:
    """The setting `chars` for all results of one message, cut down to its share of the window."""
    return _within(chars, window, MESSAGE_SHARE)


def preview_chars(chars: int, window: int) -> int:
    """The setting `chars` for a preview: a quarter of what a whole result may have, at most."""
    return _within(chars, window, RESULT_SHARE / 4)


def _within(chars: int, window: int, share: float) -> int:
    return min(chars, max(LEAST_CHARS, int(share * window))) if window else chars


def _share(tokens: int, window: int) -> int:
    return min(tokens, tokens * window // REFERENCE_WINDOW)


def window_state(
    tokens: int,
    window: int,
    max_output: int,
    *,
    reserve: int = 20_000,
    auto_buffer: int = 13_000,
    warning_buffer: int = 20_000,
    error_buffer: int = 20_000,
    block_buffer: int = 3_000,
    auto_percent: int = 0,
) -> WindowState:
    """The state at `tokens` tokens of prompt in a window of `window` tokens.

    `max_output` is the model's largest reply; `auto_percent` (1-100) can only lower the
    auto-compact mark, for tests and lessons. Marks keep their order whatever the buffers are; warning
    and error stand at half of the auto-compact threshold at the lowest. All results in tokens.
    """
    effective = max(0, window - min(max_output or reserve, _share(reserve, window)))
    block = max(0, effective - _share(block_buffer, window))
    auto = min(block, max(0, effective - _share(auto_buffer, window)))
    if auto_percent:
        auto = min(auto, window * auto_percent // 100)
    error = auto - min(_share(error_buffer, window), auto // 2)
    warning = min(error, auto - min(_share(warning_buffer, window), auto // 2))
    return WindowState(
        tokens=tokens,
        window=window,
        effective=effective,
        warning_mark=warning,
        error_mark=error,
        auto_mark=auto,
        block_mark=block,
        percent_left=max(0.0, 100.0 * (auto - tokens) / auto) if auto > 0 else 0.0,
        above_warning=tokens >= warning,
        above_error=tokens >= error,
        above_auto=tokens >= auto,
        blocked=tokens >= block,
    )


def check_fixed_part(head: int, tools: int, state: WindowState) -> None:
    """Refuse a window that system prompt + tools + reserve do not fit.

    `head` counts system prompt and tools, `tools` the tools alone, in tokens. Raises
    WindowTooSmall with the numbers.
    """
    reserve = state.window - state.block_mark
    if head >= state.block_mark:
        raise WindowTooSmall(
            f"system prompt {head - tools:,} + tools {tools:,} + reserve {reserve:,} tokens do not fit the window of "
            f"{state.window:,}: choose a model with a larger window, have the server give it one (Ollama: "
            "OLLAMA_CONTEXT_LENGTH), set IPyAgent.window, or remove tools"
        )
