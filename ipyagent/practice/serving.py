"""The practice model as a server of its own, to connect to as to any local server; Ctrl-C ends it."""

from __future__ import annotations

import sys
import threading

from ipyagent.practice.models import PRACTICE
from ipyagent.practice.server import PracticeServer
from ipyagent.practice.understanding import answer


def serve(port: int) -> int:
    """Serve until Ctrl-C; the exit status: 1 when the port is taken."""
    server = PracticeServer(brain=answer, any_model=True, keep_bodies=False)
    try:
        server.start(port)
    except (OSError, OverflowError) as problem:
        why = getattr(problem, "strerror", None) or str(problem)
        sys.stderr.write(f"ipyagent: cannot listen on port {port} ({why}); choose another with --port\n")
        return 1
    try:
        sys.stdout.write(
            f"The practice model ({PRACTICE}: rule-based, no language model) answers at {server.url}; Ctrl-C ends it.\n"
            f"In another shell, before you start Jupyter:  export ANTHROPIC_BASE_URL={server.url}\n"
        )
        sys.stdout.flush()
        threading.Event().wait()
    except KeyboardInterrupt:
        sys.stdout.write("\n")
    finally:
        server.stop()
    return 0
