"""Money: a turn pauses at its limit with a question, and says when it was unusually dear."""

from __future__ import annotations

import hashlib
import json
import statistics
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from ipyagent.journal.events import LayerFailed, PermissionAsked
from ipyagent.loop.session import Session
from ipyagent.model.prices import DEAREST, cost_of
from ipyagent.project import update_object

DEAR = 10
"""A turn is dear when it costs more than this many median turns of the session."""


AT_EXIT = 2.0
"""Seconds that the end of the process waits for what was spent to be noted."""


def today() -> str:
    return time.strftime("%Y-%m-%d")


def spent_today(path: Path) -> float:
    """Dollars that all sessions of this user spent today."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return 0.0
    return _dollars(value, today()) if isinstance(value, dict) else 0.0


def _dollars(spent: Mapping[str, object], day: str) -> float:
    value = spent.get(day)
    return float(value) if isinstance(value, int | float) else 0.0


def add_spent(path: Path, dollars: float) -> bool:
    """Add to today's sum, whoever else adds to it; False when the file could not be written."""
    day = today()
    try:
        if dollars > 0:
            update_object(path, lambda spent: {day: round(_dollars(spent, day) + dollars, 6)})
    except OSError:  # `Held` is one
        return False
    return True


class Spending:
    """What the user spends today, in a file that all kernels add to. Adding waits for nobody: a thread of its own waits
    for the file's lock; what it could not note counts all the same, and is tried again with the next.
    `notice` takes a line for the user."""

    def __init__(self, path: Path, notice: Callable[[str], None]) -> None:
        self._path, self._notice = path, notice
        self._waiting: list[float] = []
        self._lock = threading.Lock()
        self._written = threading.Event()
        self._written.set()

    def __repr__(self) -> str:
        return f"<Spending in {self._path}, {len(self._waiting)} sums wait>"

    def today(self) -> float:
        """Dollars of today, with those that wait."""
        return spent_today(self._path) + sum(self._waiting)

    def add(self, dollars: float) -> None:
        """Add to today's sum."""
        if dollars <= 0:
            return
        with self._lock:
            self._waiting.append(dollars)
            if not self._written.is_set():
                return
            self._written.clear()
        threading.Thread(target=self._write, name="ipyagent-spending", daemon=True).start()

    def written(self, seconds: float) -> bool:
        """Wait until all is in the file, or could not be, `seconds` at most; whether that is so."""
        return self._written.wait(seconds)

    def _write(self) -> None:
        while True:
            with self._lock:
                sums = list(self._waiting)
                if not sums:
                    self._written.set()
                    return
            if not add_spent(self._path, sum(sums)):
                self._notice(f"today's cost could not be saved: make {self._path} writable, or set IPYAGENT_HOME")
                self._written.set()
                return
            with self._lock:
                del self._waiting[: len(sums)]


class Budget:
    """The limits of one turn. A yes doubles the limit that was reached, for this turn only."""

    def __init__(self, session: Session, before_today: float) -> None:
        self._session = session
        self._before = before_today
        self._turn = session.limits.max_cost
        self._day = session.limits.max_cost_per_day

    async def check(self) -> str:
        """Ask the user when a limit is reached; the line that ends the turn, "" to go on."""
        if not (self._turn or self._day):
            return ""
        info = self._session.info
        if cost_of(info.model, server=info.server) is None:  # before the first dollar, not after it
            self._tell_unpriced(info.model)
        cost = self._session.turn_at_most
        day = self._before + cost
        about = self._unpriced()
        if self._turn and cost >= self._turn:
            line = f"this request has cost {about}${cost:.2f}, its limit is ${self._turn:.2f} (max_cost)"
            if not await self._ask(line):
                return f"{line}; say `continue`, or raise IPyAgent.max_cost"
            self._turn = 2 * cost
        if self._day and day >= self._day:
            line = f"today's cost is {about}${day:.2f}, the limit is ${self._day:.2f} (max_cost_per_day)"
            if not await self._ask(line):
                return f"{line}; raise IPyAgent.max_cost_per_day to continue today"
            self._day = 2 * day
        return ""

    def _unpriced(self) -> str:
        """ "up to " when a price is not known, which is said once a session."""
        session = self._session
        if session.turn_cost is not None:
            return ""
        name, server = session.info.model, session.info.server
        self._tell_unpriced(name if cost_of(name, server=server) is None else f"a model that works for {name}")
        return "up to "

    def _tell_unpriced(self, name: str) -> None:
        if "price" in self._session.told:
            return
        self._session.told.add("price")
        dearest = f"${DEAREST.input:g} a million in, ${DEAREST.output:g} out"
        why = (
            f"No price is known for {name}: limits count its tokens at the highest known rates ({dearest}); "
            "set its own with IPyAgent.price"
        )
        self._session.record(LayerFailed(layer="budget", why=why))

    async def _ask(self, line: str) -> bool:
        surface = self._session.surface
        if surface is None or not surface.can_ask:
            return False
        text = f"{line}. Continue?"
        answer = await self._session.ask(
            PermissionAsked(
                call=f"budget-{self._session.journal.last}",
                tool="budget",
                title="Cost limit reached",
                text=text,
                digest=hashlib.sha256(text.encode()).hexdigest(),
            )
        )
        return answer.answer != "deny"


def dear_turn(session: Session) -> str:
    """One line when this turn cost more than DEAR median turns ("" otherwise)."""
    cost, earlier = session.turn_cost or 0.0, [turn for turn in session.history.turn_costs if turn > 0]
    if len(earlier) < 3 or cost <= DEAR * statistics.median(earlier):
        return ""
    return f"this turn cost ${cost:.2f}, {cost / statistics.median(earlier):.0f} times the median turn of the session"
