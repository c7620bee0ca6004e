"""A turn that is stopped before it started closes all the same."""

from __future__ import annotations

import asyncio

from ipyagent.kernel.thread import AgentLoop


def test_a_task_that_is_cancelled_at_once_has_its_first_step_and_closes_itself() -> None:
    thread = AgentLoop()
    try:

        async def turn() -> str:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                return "closed"
            return "slept"

        for _ in range(200):
            future = thread.start(turn)
            thread.cancel(future)
            assert future.result(timeout=5) == "closed"
    finally:
        thread.close()
