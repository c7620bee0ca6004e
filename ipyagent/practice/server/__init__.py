"""A Messages API server on loopback that keeps the API's rules: for tests, lessons and people without a key.

It knows nothing of the practice model; what answers is its `brain`, a function from a request's body to a reply.
"""

from ipyagent.practice.server.practice_server import PracticeServer, echo, serve
from ipyagent.practice.server.wire import Exchange

__all__ = ["Exchange", "PracticeServer", "echo", "serve"]
