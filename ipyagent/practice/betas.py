"""The values of `anthropic-beta` the server knows, and the request fields that need one.

The names are those of the Messages API in SDK 2.14; others are refused, as the API refuses a misspelt one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

BLOCK_BINDING: Final = "thinking-binding-controls-2026-08-01"

FIELDS: Final[Mapping[str, tuple[str, ...]]] = {
    "context_management": ("context-management-2025-06-27", "compact-2026-01-12"),
    "compaction": ("compact-2026-09-04",),
    "thread": ("message-threads-2026-08-12",),
    "mcp_servers": ("mcp-client-2026-09-15", "mcp-client-2025-11-20", "mcp-client-2025-04-04"),
    "fallbacks": ("server-side-fallback-2026-07-01", "server-side-fallback-2026-06-01"),
    "fallback_credit_token": ("fallback-credit-2026-07-01", "fallback-credit-2026-06-01"),
}

KNOWN: Final = frozenset(
    {
        BLOCK_BINDING,
        *(beta for names in FIELDS.values() for beta in names),
        "advisor-tool-2026-03-01",
        "cache-diagnosis-2026-04-07",
        "context-1m-2025-08-07",
        "extended-cache-ttl-2025-04-11",
        "files-api-2025-04-14",
        "inline-tools-2026-09-15",
        "interleaved-thinking-2025-05-14",
        "mid-conversation-output-config-2026-07-01",
        "mid-conversation-system-clear-at-2026-08-21",
        "mid-conversation-tool-changes-2026-07-01",
        "model-context-window-exceeded-2025-08-26",
        "output-128k-2025-02-19",
        "pdfs-2024-09-25",
        "prompt-caching-2024-07-31",
        "structured-outputs-2025-11-13",
        "task-budgets-2026-03-13",
        "thinking-display-updates-2026-08-18",
        "thinking-token-count-2026-05-13",
        "token-counting-2024-11-01",
        "token-efficient-tools-2025-02-19",
    }
)
