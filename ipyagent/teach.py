"""For lessons: `play` sends the requests of one, `chart` and `compare` draw what the session's journal says.

Every figure is the session's own. The pictures are SVG: they stay in the saved notebook, and a notebook that is
only read (on GitHub, as HTML) has them too.

    from ipyagent import teach

    teach.begin()                  # a folder for this notebook alone, gone when the kernel ends
    teach.play("clearing", 1, 5)   # requests 1 to 5 of the practice model's lesson
    teach.chart("cache")           # also "context", "window"
    teach.compare()                # before and after the newest decision of a layer
"""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ipyagent.errors import AgentError, UsageError

if TYPE_CHECKING:
    from ipyagent.agent import Agent
    from ipyagent.journal.events import Event
    from ipyagent.loop.session import Session
    from ipyagent.ui.charts import Chart

CHARTS = ("context", "window", "cache")
TITLES = {
    "store_results": "A large result, kept in a file",
    "clear_results": "Old tool results cleared",
    "notes": "Session notes in place of the conversation",
    "summarize": "A summary in place of the conversation",
    "snip": "Turns removed",
    "undo": "A decision undone",
}
LAYERS = tuple(TITLES)
QUIET = 20.0
"""Seconds that `wait` takes at most."""


def begin(name: str = "") -> None:
    """Give this notebook a temporary folder for its project, its memories and what would be in your home folder.

    Call it before `%load_ext ipyagent`. The folder is removed when the kernel ends; with `name` it is kept for the next
    kernel (a lesson with a restart) until `end()`. If IPYAGENT_PROJECT is set, that folder is used and kept. Raises
    OSError if the folder cannot be made.
    """
    if not os.environ.get("IPYAGENT_PROJECT"):
        folder = Path(tempfile.gettempdir()) / f"ipyagent-{name}-{getattr(os, 'getuid', int)()}"
        if name:
            folder.mkdir(mode=0o700, exist_ok=True)
        if not name or folder.is_symlink() or (hasattr(os, "getuid") and folder.stat().st_uid != os.getuid()):
            folder = Path(tempfile.mkdtemp(prefix="ipyagent-lesson-"))
        os.environ.update(IPYAGENT_PROJECT=str(folder), IPYAGENT_HOME=str(folder / "home"), IPYAGENT_LESSON=str(folder))
        if not name:
            atexit.register(end)
    os.chdir(os.environ["IPYAGENT_PROJECT"])


def end() -> None:
    """Remove the folder that `begin` made, with everything in it."""
    folder = os.environ.pop("IPYAGENT_LESSON", "")
    if folder:
        os.chdir(Path(folder).parent)
        shutil.rmtree(folder, ignore_errors=True)
        for variable in ("IPYAGENT_PROJECT", "IPYAGENT_HOME"):
            os.environ.pop(variable, None)


def play(lesson: str, first: int = 1, last: int | None = None, *, show: bool = True) -> None:
    """Send requests `first` to `last` (counted from 1; None: to the end) of a lesson of the practice model.

    Shows each with its answer (`show=False`: only their number) and waits for background work, see `wait`. Raises
    ValueError for an unknown lesson, AgentError if a turn fails, UsageError outside IPython.
    """
    from ipyagent.practice.model.lessons import requests

    shell, asks = _shell(), requests(lesson)[first - 1 : last]
    for asked in asks:
        if show:
            print(f"> {asked}")  # noqa: T201 - the request, as a cell would show it
            shell.run_cell_magic("agent", f"--quiet --lesson {lesson}", asked)
        else:
            result = _agent(None).run_sync(asked, lesson=lesson)
            if result.status != "finished":
                raise AgentError(result.message)
    if not show:
        print(f"{len(asks)} requests of the lesson {lesson!r} sent")  # noqa: T201 - what stands for the answers
    wait()


def wait() -> None:
    """Wait for the session's background work (notes, memories), 20 seconds at most."""
    from ipyagent.parts.memory import MemoryPart

    agent, until = _agent(None), time.monotonic() + QUIET
    if agent.session is not None and agent.session.background.wait(QUIET) and agent.settings.memory:
        agent.part(MemoryPart).extracting.wait(agent.session, max(0.0, until - time.monotonic()))


def chart(what: str = "context", *, agent: Agent | None = None) -> Chart:
    """Draw the session as an SVG chart.

    `what`: "context" (what fills the window now, in tokens by source), "window" (how it filled turn by turn, and what
    was decided) or "cache" (the tokens that each request read from the prompt cache, and its price in US dollars).
    `agent`: the agent of a script; None is that of this notebook. Figures come from the session's journal, prices from
    the price table (for the practice model, those of the model that the chart names). Raises UsageError for another
    word, and if there is no session.
    """
    from ipyagent.journal.events import CacheBroken, UsageReported
    from ipyagent.model.prices import LESSON_MODEL, rates_of
    from ipyagent.reports.timeline import Shares, timeline
    from ipyagent.ui import charts

    made = _agent(agent)
    session = _session(made)
    if what == "context":
        return charts.context_chart(Shares().of(session.view), made.state_of(session))
    if what == "window":
        shown = timeline(session.journal.read())
        return charts.window_chart(shown.bars, shown.marks, made.state_of(session))
    if what == "cache":
        usages, breaks = [], []
        for event in session.journal.read():
            if isinstance(event, UsageReported):
                usages.append(event.usage)
            elif isinstance(event, CacheBroken):
                breaks.append((len(usages), event.missed, event.cause))
        model = session.info.model
        return charts.cache_chart(usages, rates_of(model), LESSON_MODEL if model == "practice" else model, breaks)
    raise UsageError(f"a chart is one of {', '.join(CHARTS)}, not {what!r}")


def compare(layer: str = "", *, agent: Agent | None = None) -> Chart:
    """Draw the context before and after the newest decision, in tokens by source, with what it cost and saves.

    `layer`: "store_results", "clear_results", "notes", "summarize", "snip" or "undo"; "" is any. `agent` and the source
    of the figures are as in `chart`. Raises UsageError for another word, and if there was no such decision.
    """
    from ipyagent.ui.charts import compare_chart

    if layer and layer not in LAYERS:
        raise UsageError(f"the layer is one of {', '.join(LAYERS)}, not {layer!r}")
    session = _session(_agent(agent))
    events = list(session.journal.read())
    decided = [event for event in events if (_layer(event) == layer if layer else _layer(event))]
    if not decided:
        raise UsageError(
            f"{f'{layer} has not' if layer else 'no layer has'} acted in this session: run a lesson of it first"
        )
    made = decided[-1]
    before, after = _around(session, events, made)
    return compare_chart(TITLES[_layer(made)], before, after, _price(session, events, made, before, after))


# ------------------------------------------------------------------ what a decision was


def _layer(event: Event) -> str:
    """Which layer made it; "" for what is no decision."""
    from ipyagent.journal.events import Compacted, DecisionUndone, ResultsCleared, ResultStored, TurnsRemoved

    match event:
        case ResultStored() if event.tokens:
            return "store_results"
        case ResultsCleared():
            return "clear_results"
        case Compacted():
            return "notes" if event.method == "notes" else "summarize"
        case TurnsRemoved():
            return "snip"
        case DecisionUndone():
            return "undo"
        case _:
            return ""


def _around(session: Session, events: Sequence[Event], made: Event) -> tuple[dict[str, int], dict[str, int]]:
    """Tokens by source before a decision and after it. A result that is stored was never sent whole: before is the
    context at the turn's end as it would be without the layer."""
    from ipyagent.journal.events import ResultStored, TurnEnded
    from ipyagent.journal.tokens import estimate_text
    from ipyagent.reports.timeline import Shares, view_at

    if isinstance(made, ResultStored):
        ends = [event.id for event in events if isinstance(event, TurnEnded) and event.id > made.id]
        after = Shares().of(view_at(events, ends[0] if ends else events[-1].id))
        whole = estimate_text((session.journal.folder / made.path).read_text(encoding="utf-8"))
        return {**after, "tool results": after["tool results"] + whole - made.tokens}, after
    return Shares().of(view_at(events, made.id - 1)), Shares().of(view_at(events, made.id))


def _price(
    session: Session, events: Sequence[Event], made: Event, before: dict[str, int], after: dict[str, int]
) -> list[str]:
    """What the decision cost, and what it saves with every request, in dollars of the session's model."""
    from ipyagent.journal.events import Compacted, ForkEnded, ResultStored, UsageReported
    from ipyagent.model.prices import LESSON_MODEL, cost_of, rates_of

    practice = session.info.model == "practice"
    model, rates = LESSON_MODEL if practice else session.info.model, rates_of(session.info.model)
    less = sum(before.values()) - sum(after.values())
    change = "cheaper" if less >= 0 else "more expensive"
    told = [f"Each request from here on is ${abs(less) * rates.read:.4f} {change} (prices of {model})."]
    if isinstance(made, ResultStored):
        return [f"Storing costs nothing; the first request is ${less * rates.write:.4f} cheaper.", *told]
    calls = [event for event in events if isinstance(event, ForkEnded) and event.purpose == "compaction"]
    calls = [event for event in calls if event.id < made.id] if isinstance(made, Compacted) else []
    if calls and _layer(made) == "summarize":
        cost = cost_of(model, calls[-1].usage) or 0.0
        read = calls[-1].usage.cache_read / (calls[-1].usage.prompt or 1)
        told.insert(0, f"The call that wrote it cost ${cost:.4f}; {100 * read:.0f} % of it was read from the cache.")
    following = [event.usage for event in events if isinstance(event, UsageReported) and event.id > made.id]
    if following:
        again = following[0].cache_write
        told.insert(0, f"The next request wrote {again:,} tokens to the cache again: ${again * rates.write:.4f}.")
    return told


# ------------------------------------------------------------------ where it is drawn


def _shell() -> Any:
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if shell is None:
        raise UsageError("teach.play needs a notebook or IPython; a script asks Agent.run_sync(..., lesson=NAME)")
    return shell


def _agent(agent: Agent | None) -> Agent:
    if agent is not None:
        return agent
    extension = getattr(_shell(), "_ipyagent_extension", None)
    if extension is None:
        raise UsageError("run %load_ext ipyagent first")
    found: Agent = extension.agent_now
    return found


def _session(agent: Agent) -> Session:
    if agent.session is None:
        raise UsageError("there is nothing to draw yet: run a %%agent cell first")
    return agent.session
