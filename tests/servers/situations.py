"""Whole sessions of a real agent with each product: what happens in a situation, and that the next request is valid.

A situation gives "" where all is as if the server were the API's own, one line where the user has to do something, and
NOT_HERE where the product has no such thing. It raises AssertionError where neither holds.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import copy
from pathlib import Path
from typing import Any

import pytest

from ipyagent import Agent, IPyAgent, TurnResult
from ipyagent.extension.context_report import report
from ipyagent.journal.events import (
    CacheBroken,
    Compacted,
    Event,
    LayerFailed,
    Retrying,
    Streamed,
    SystemReminder,
    ThinkingDropped,
    TurnEnded,
    UsageReported,
)
from ipyagent.journal.journal import TRANSCRIPT, read_events
from ipyagent.journal.view import ContextView
from ipyagent.practice.replies import Reply, calls, text, tool
from tests.servers.products import Answer, LiteLLM, LMStudio, OpenRouter, Product, Server, serving

NOT_HERE = "—"
KEY = "sk-plain-looking-4f9a1c77d2"
SMALL = 20_000
"""Tokens of a window that a few results fill."""


class Room:
    """An agent, its server, and what the user was told."""

    def __init__(self, server: Server, folder: Path, **settings: Any) -> None:
        self.server, self.folder = server, folder
        given: dict[str, Any] = {
            "base_url": server.url, "model": server.model, "mode": "auto", "max_retries": 1, "max_retry_wait": 0.01,
            "request_timeout": 10.0, "extraction": False, "layer_notes": False, "trust_all": True, "skills": False,
            **settings,
        }  # fmt: skip
        self.agent = Agent(settings=IPyAgent(environ={}, **given), folder=folder)

    def turn(self, said: str = "hello", *replies: Reply) -> TurnResult:
        self.server.script(*replies)
        result = self.agent.run_sync(said)
        one_line(result.message)
        return result

    def works(self, said: str, *replies: Reply, answer: str = "ok") -> None:
        """A turn that ends well."""
        result = self.turn(said, *replies)
        assert (result.status, result.text.strip()) == ("finished", answer), (result.message, result.text)

    def goes_on(self) -> None:
        """The next turn works, nothing was sent that a strict server refuses, and the journal gives the same again."""
        self.server.drain()
        self.works("go on", tool("python", {"code": "'on'"}), text("and on we go"), answer="and on we go")
        assert self.server.faults == []
        assert ContextView.of(self.events()).wire() == self.session.view.wire()
        assert KEY not in "".join(self.told())

    def fills_up(self, tokens: int) -> None:
        """Requests of so many tokens each until something is compacted, and one more."""
        for number in range(20):
            done = number and self.of(Compacted)
            boxes = " ".join(f"box {number}-{n} weighs {n * 37 % 101} kg" for n in range(round(tokens / 9.8)))
            self.works(f"keep in mind: {boxes}", text("ok"))
            if done:
                return

    @property
    def session(self) -> Any:
        return self.agent.session

    def events(self) -> list[Event]:
        return list(read_events(self.session.journal.folder / TRANSCRIPT))

    def of(self, kind: type[Any]) -> list[Any]:
        return [event for event in self.events() if isinstance(event, kind)]

    def told(self) -> list[str]:
        """Every line that the user could read apart from answers."""
        lines = list(self.agent.notices)
        for event in self.events():
            match event:
                case LayerFailed() | SystemReminder():
                    lines.append(event.why)
                case Retrying():
                    lines.append(event.reason)
                case TurnEnded():
                    lines.append(event.message)
                case _:
                    pass
        return lines

    def thoughts(self) -> str:
        return "".join(event.text for event in self.of(Streamed) if event.channel == "thinking")


def one_line(message: str) -> None:
    assert "\n" not in message, message
    assert "internal error" not in message, message
    assert "Traceback" not in message, message
    assert KEY not in message, message
    assert len(message) < 900, message


def results(count: int, number: int) -> list[Reply]:
    """A turn that prints about `count` tokens, and its answer."""
    code = f"print('\\n'.join(f'box {{n}}-{number} weighs {{n * 7}} kg' for n in range({count // 9})))"
    return [tool("python", {"code": code}), text("ok")]


@contextmanager
def room(product: Product, folder: Path, *, settings: dict[str, Any] | None = None, **server: Any) -> Iterator[Room]:
    with pytest.MonkeyPatch.context() as patch, serving(product, **server) as running:
        patch.setenv("ANTHROPIC_API_KEY", KEY)
        patch.setenv("IPYAGENT_HOME", str(folder / "home"))
        place = folder / "project"
        place.mkdir(exist_ok=True, parents=True)
        made = Room(running, place, **(settings or {}))
        try:
            yield made
        finally:
            made.agent.close()


# ------------------------------------------------------------------ what is as with the API's own server


def tools(product: Product, folder: Path) -> str:
    """Streamed turns with tools side by side, and thinking where the product sends it."""
    with room(product, folder) as here:
        both = [("python", {"code": "a = 6 * 7\na"}), ("python", {"code": "b = a + 1\nb"})]
        here.works("count", calls(both, thinking="First a." if product.thinks else None, say="Both."), text("ok"))
        assert (here.agent.shell.user_ns["a"], here.agent.shell.user_ns["b"]) == (42, 43)
        once = tool("python", {"code": "c = 'naïve ✓'"}, thinking="Hm." if product.thinks else None)
        here.works("more", once, text("ok"))
        assert here.agent.shell.user_ns["c"] == "naïve ✓"
        unsigned = product.wants_thinking and product.signature is None  # the model stops thinking: it is not kept
        assert here.thoughts() == ("First a." if unsigned else "First a.Hm." if product.thinks else "")
        here.goes_on()
        assert len(here.server.refusals) == bool(unsigned)
    return ""


def thinking_back(product: Product, folder: Path) -> str:
    """The model wants back what it thought before each call, and some of it has left the context: it is asked without
    thinking, said once; where it thinks all the same, one line says so."""
    if not product.wants_thinking:
        return NOT_HERE
    with room(product, folder) as here:
        here.works("count", tool("python", {"code": "a = 1"}, thinking="First a."), text("ok"))
        here.session.record(ThinkingDropped(upto=here.session.journal.last, why="old results were cleared"))
        for number in range(2):
            here.works(f"more {number}", tool("python", {"code": f"b = {number}"}, thinking="Hm."), text("ok"))
        here.goes_on()
        assert len(here.server.refusals) == 1, here.server.refusals
        assert len([line for line in here.told() if "asked without thinking" in line]) == 1, here.told()
        here.agent.new()
        here.works("hello", tool("python", {"code": "c = 1"}, thinking="Hm."), text("ok"))
        assert ("thinking" in here.server.bodies[-1]) == (product.signature is None), "whole thinking may stay"
    stubborn = copy(product)
    stubborn.always_thinks = True
    with room(stubborn, folder / "always") as here:
        here.works("hello")
        here.turn("count", tool("python", {"code": "a = 1"}, thinking="First a."), text("ok"))
        here.session.record(ThinkingDropped(upto=here.session.journal.last, why="old results were cleared"))
        result = here.turn("look")
        assert result.status == "failed"
        assert "%agent model NAME" in result.message, result.message
        assert "%agent new" not in result.message, result.message
    return result.message


def window_told(product: Product, folder: Path) -> str:
    """The product says how large its window is: it is compacted before it is too small."""
    if not product.tells_window:
        return NOT_HERE
    with room(product, folder, window=40_000) as here:
        here.works("hello")
        assert here.agent.info.window == 40_000, here.agent.info
        here.fills_up(3_000)
        assert here.of(Compacted)
        assert [line for line in here.server.refusals if "is too large" not in line] == []
        here.goes_on()
    return ""


def window_unknown(product: Product, folder: Path) -> str:
    """A model of 32K behind a gateway that says nothing: the first request works, and it is said what is assumed. Where
    `max_tokens` is larger than the model can write, less is asked for, and remembered."""
    with room(product, folder, window=32_000, most=8_000, tells=False, priced=False) as here:
        here.works("hello")
        assert here.agent.info.window in (32_000, 200_000)
        assert f"of {here.agent.info.window:,} tokens" in report(here.agent, [])
        if product.checks_output:
            here.works("again")
            assert len(here.server.refusals) == 1
            assert here.server.bodies[-1]["max_tokens"] < here.server.bodies[0]["max_tokens"]
        here.goes_on()
    return ""


def cut_silently(product: Product, folder: Path) -> str:
    """A prompt that does not fit is cut without a word, and what is left is counted."""
    if product.refuses and not isinstance(product, LiteLLM | OpenRouter | LMStudio):
        return NOT_HERE
    with room(product, folder, window=12_000, tells=False, cuts=True) as here:
        for number in range(4):
            here.works(f"print {number}", *results(5_000, number))
        named = [line for line in here.told() if "IPyAgent.window" in line]
        assert len(named) == 1, here.told()
        one_line(named[0])
        whole = here.server.count(here.server.bodies[-1])
        assert here.session.view.count().tokens > 0.7 * whole, "a count of a cut prompt is believed"
        here.goes_on()
    return named[0]


def overflow(product: Product, folder: Path) -> str:
    """A prompt that does not fit is refused, in the product's words: compacted, asked again, answered."""
    with room(product, folder, window=SMALL, tells=False, cuts=False) as here:
        here.fills_up(3_000)
        assert here.server.refusals or product.name.startswith("LM Studio")
        assert here.of(Compacted)
        here.goes_on()
    return ""


def no_small_model(product: Product, folder: Path) -> str:
    """Only the main model is there: sub-agents and the choice among memories are done by it, said once."""
    with room(product, folder, served="claude-sonnet-5-5") as here:
        memories = here.agent.project.folder / "memory"
        memories.mkdir(parents=True)
        for number in range(8):
            head = f"---\nname: fact {number}\ndescription: the boxes of shelf {number}\ntype: project\n---\n"
            (memories / f"fact_{number}.md").write_text(f"{head}Shelf {number} holds boxes.\n", encoding="utf-8")
        for number in range(2):
            asked = {"task": f"look {number}", "prompt": "look at the boxes", "type": "explore"}
            here.works("which boxes are on the shelves?", tool("agent", asked), text("seen"), text("ok"))
        failed = [line for line in here.told() if "%agent new" in line or "could not choose" in line]
        assert failed == []
        said = [line for line in here.told() if "small_model" in line]
        assert len(said) == (not product.any_name), here.told()
        one_line(" ".join(said))
        here.goes_on()
    return " ".join(said)


def no_prices(product: Product, folder: Path) -> str:
    """What the model costs is not known: a limit on the cost holds all the same."""
    with room(product, folder, priced=False, served="unpriced-model", settings={"max_cost": 0.05}) as here:
        result = here.turn("work", *[tool("python", {"code": str(n)}) for n in range(20)])
        assert result.status == "limit", result.message
        assert "max_cost" in result.message
        assert len(here.server.bodies) < 10
        assert [line for line in here.told() if "No price is known for unpriced-model" in line]
        here.server.drain()
        assert here.server.faults == []
    return result.message


def price_told(product: Product, folder: Path) -> str:
    """The product says what its model costs."""
    if not product.tells_price:
        return NOT_HERE
    with room(product, folder, settings={"max_cost": 10.0}) as here:
        here.works("hello")
        (used,) = here.of(UsageReported)
        dollars = (used.usage.input * 3 + used.usage.output * 15) / 1e6
        assert used.cost == pytest.approx(dollars, rel=0.01), used
        here.goes_on()
    return ""


def no_caching(product: Product, folder: Path) -> str:
    """Cache marks are refused, and nothing is said of a cache."""
    with room(product, folder, lacks="cache_control") as here:
        for number in range(3):
            here.works(f"print {number}", *results(1_000, number))
        assert len([told for told in here.server.refusals if "cache_control" in told]) == 1
        assert "cache_control" not in json.dumps(here.server.bodies[1:])
        assert here.of(CacheBroken) == []
        here.goes_on()
    return ""


def no_counting(product: Product, folder: Path) -> str:
    """There is no `count_tokens`, or nobody needs it: the figures of the context are there."""
    with room(product, folder, counts=False) as here:
        here.works("hello")
        assert "tokens" in report(here.agent, [])
        here.goes_on()
    return ""


def odd_streams(product: Product, folder: Path) -> str:
    """Streams that this product has sent: once, and again and again."""
    lines = []
    with room(product, folder) as here:
        here.works("hello")
        for what, raw, words in product.odd(here.server):
            for times in (1, 8):
                here.server.say(*[(200, raw)] * times)
                told = len(here.told())
                result = here.turn(f"look, {times}")
                new = " ".join(here.told()[told:])
                assert words in new, (what, new)
                assert times > 1 or result.status == "finished", (what, result.message)
                here.goes_on()
            if result.message:
                lines.append(result.message)
    return " | ".join(dict.fromkeys(lines))


# ------------------------------------------------------------------ what the user has to do


def refused(here: Room, answer: Answer | None, *says: str) -> str:
    """Whatever it refuses is one line in its words, which says what to do; then the session goes on."""
    if answer is None:
        return NOT_HERE
    here.works("hello")
    here.server.say(*[answer] * 8)
    result = here.turn("look")
    assert result.status == "failed"
    assert any(word in result.message for word in says), result.message
    error = answer[1].get("error", answer[1]) if isinstance(answer[1], dict) else answer[1]
    words = str(error.get("message") if isinstance(error, dict) else error or "")[:60].rstrip(".")
    assert words in result.message, (words, result.message)
    assert "%agent new" not in result.message, result.message
    here.goes_on()
    return result.message


MODEL = "%agent model", "load a model", "again later"
REFUSALS: dict[str, tuple[Callable[[Product], Answer | None], tuple[str, ...]]] = {
    # what is answered in place of a reply, and what the line may say
    "no such model": (lambda product: product.no_model, MODEL),
    "no tools": (lambda product: product.no_tools, ("choose a model that can call them",)),
    "key refused": (lambda product: product.auth, ("ANTHROPIC_API_KEY",)),
    "budget spent": (lambda product: product.spent, ("the account's limit is reached",)),
    "error with status 200": (lambda product: (200, product.no_model[1]), MODEL),
    "400 without a body": (lambda product: (400, None), ("gave no reason",)),
}


def refusals(product: Product, folder: Path, *names: str) -> str:
    """What a session says of each of REFUSALS, or of those named, one after another."""
    with room(product, folder) as here:
        return " | ".join(refused(here, REFUSALS[name][0](product), *REFUSALS[name][1]) for name in names or REFUSALS)


SITUATIONS: dict[str, Callable[[Product, Path], str]] = {
    "tools, thinking, streams": tools,
    "thinking sent back": thinking_back,
    "window told": window_told,
    "window unknown": window_unknown,
    "prompt cut silently": cut_silently,
    "prompt too long": overflow,
    "no small model": no_small_model,
    "no prices": no_prices,
    "price told": price_told,
    "no caching": no_caching,
    "no counting": no_counting,
    "odd streams": odd_streams,
}
