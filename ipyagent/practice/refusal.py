"""A request that is answered with an error: status, error type, message and stable code, as the API words them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

KINDS: Mapping[int, str] = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    405: "invalid_request_error",
    408: "timeout_error",
    409: "conflict_error",
    413: "request_too_large",
    422: "invalid_request_error",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}


@dataclass(eq=False)  # not frozen: the interpreter writes `__traceback__` into exceptions
class Refused(Exception):
    """Why a request was refused; `details` goes into the error's `details` beside `error_code`."""

    message: str
    status: int = 400
    kind: str = ""
    code: str | None = None
    details: Mapping[str, Any] | None = None

    def body(self, request_id: str) -> dict[str, Any]:
        """The error body of the API."""
        error: dict[str, Any] = {"type": self.kind or KINDS.get(self.status, "api_error"), "message": self.message}
        if self.code or self.details:
            error["details"] = {**({"error_code": self.code} if self.code else {}), **(self.details or {})}
        return {"type": "error", "error": error, "request_id": request_id}
