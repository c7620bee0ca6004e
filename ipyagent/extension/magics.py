"""The magics: parse, call, show. Loading registers them and does nothing else; all is made on first use."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from ipyagent.errors import AgentError, TrustError, UsageError
from ipyagent.extension import CellOptions, Extension, one_line, parse
from ipyagent.kernel.thread import keep_logs_apart

if TYPE_CHECKING:
    from ipyagent.agent import Agent
    from ipyagent.assembly.requests import Options, PreparedTurn, TurnResult
    from ipyagent.journal.recorded import Recording
    from ipyagent.kernel.page import PageLink

_OUTER = re.compile(r"%%(time|timeit|capture|prun)(?:[ \t]+(.*))?$")
"""Magics whose cell is code: they may stand above ours. They try to parse it, so they get a call."""
_QUESTION = re.compile(r"^\s*%(?P<name>\w+)[ \t]+(?P<rest>\S.*\?)\s*$")


class CellTransformer:
    """Turns cells of the magics `names` into calls; those of `lines` that take a cell too, but nobody awaits
    them. IPython skips it when it only asks whether a cell is complete (`has_side_effects`), so that typing
    line by line works in a terminal."""

    has_side_effects = True

    def __init__(self, shell: Any, names: Sequence[str], lines: Sequence[str] = ()) -> None:
        self._shell = shell
        self._names = tuple(names)
        self._lines = tuple(lines)
        cells = (*names, *(name for name in lines if name == "memory"))
        self._cell = re.compile(r"%%(" + "|".join(cells) + r")(?:[ \t]+(.*))?$")

    def __call__(self, lines: list[str]) -> list[str]:
        start = next((number for number, line in enumerate(lines) if line.strip()), None)
        if start is None:
            return lines
        if not lines[start].lstrip().startswith("%%"):
            return self._requests(lines)
        made = self._made(lines[start:], awaitable=self._awaitable)
        return lines if made is None else [made]

    def _made(self, lines: list[str], *, awaitable: bool) -> str | None:
        """The call for a cell that begins with one of our magics, also below `%%time` and the like."""
        first = lines[0].strip()
        if match := self._cell.match(first):
            return self._call(match.group(1), match.group(2) or "", "".join(lines[1:]), awaitable)
        outer = _OUTER.match(first)
        below = next((number for number, line in enumerate(lines) if number and line.strip()), None)
        if outer is None or below is None:
            return None
        inner = self._made(lines[below:], awaitable=False)
        if inner is None:
            return None
        return f"get_ipython().run_cell_magic({outer.group(1)!r}, {outer.group(2) or ''!r}, {inner!r})\n"

    def _call(self, name: str, options: str, body: str, awaitable: bool) -> str:
        if name not in self._names:
            if not body.strip():
                return f"get_ipython().run_line_magic({name!r}, {options!r})\n"
            return f"get_ipython().run_cell_magic({name!r}, {options!r}, {body!r})\n"
        if not body.strip() and not options:
            return f"get_ipython().run_line_magic({name!r}, 'help')\n"
        body = body or "\n"  # an empty one IPython takes for a mistake; the request stands on the first line
        if awaitable:
            return f"await get_ipython().run_cell_magic('{name}_async', {options!r}, {body!r})\n"
        return f"get_ipython().run_cell_magic({name!r}, {options!r}, {body!r})\n"

    def _requests(self, lines: list[str]) -> list[str]:
        """The lines, with our magic lines that end in "?" made calls; not those inside of strings."""
        for number, line in enumerate(lines):
            if (made := self._request(line)) != line and _begins_statement(lines, number):
                lines = [*lines[:number], made, *lines[number + 1 :]]
        return lines

    def _request(self, line: str) -> str:
        match = _QUESTION.match(line)
        if match is None or match.group("name") not in (*self._names, *self._lines):
            return line
        indent = line[: len(line) - len(line.lstrip())]
        return f"{indent}get_ipython().run_line_magic({match.group('name')!r}, {match.group('rest')!r})\n"

    @property
    def _awaitable(self) -> bool:
        """Whether this is a whole cell at top level: inside `%%time` and the like nobody awaits."""
        return bool(self._shell.autoawait) and self._shell.builtin_trap._nested_level == 0


def _begins_statement(lines: list[str], number: int) -> bool:
    """Whether a statement begins at a line, as IPython sees it."""
    from IPython.core.inputtransformer2 import make_tokens_by_line

    return any(
        tokens and next((token.start[0] for token in tokens if token.string.strip()), 0) == number + 1
        for tokens in make_tokens_by_line(lines)
    )


def literal(function: Callable[..., Any]) -> Callable[..., Any]:
    """Mark a magic so that IPython expands no `$x` and `{x}` on its line."""
    function._ipython_magic_no_var_expand = True  # type: ignore[attr-defined] # IPython's own mark
    return function


class Companion:
    """One kernel's: status bar, board at the side, Stop, and whether a cell ran as it stands."""

    def __init__(self, extension: Extension, link: PageLink) -> None:
        self._extension, self._link = extension, link
        link.on_change(self.tell)
        link.listen(self._hear)

    def __repr__(self) -> str:
        return f"<Companion over {self._link!r}>"

    def tell(self, result: Any = None) -> None:
        """What is so now, to every page; also a `post_run_cell` callback."""
        if self._link.met:
            self._link.send({"kind": "status", **self.status()})

    def status(self) -> dict[str, Any]:
        """Model, context and cost in words for the page, and whether a turn runs."""
        from ipyagent.ui.meter import dollars

        agent, settings = self._extension.agent_made, self._extension.settings
        session = agent.session if agent is not None else None
        if agent is None or session is None:
            return {"model": settings.model_words, "context": "", "cost": "", "busy": False}
        status, window = session.status(), agent.state_of(session)
        percent = 100 * window.tokens / max(1, window.window)
        share = f"{percent:.0f}% context" if percent >= 1 else "<1% context"
        cost = "" if status.cost is None else dollars(status.cost)
        return {"model": session.info.model if session.connected else settings.model_words, "context": share,
                "cost": cost, "busy": agent.busy}  # fmt: skip

    def _hear(self, data: dict[str, Any]) -> None:
        """A page came, or its user asks for something; on any thread."""
        agent = self._extension.agent_made
        match data.get("kind"):
            case "hello":
                self.tell()
            case "stop" if agent is not None:
                agent.stop()
            case "panel":
                loop = getattr(self._extension.shell.kernel, "io_loop", None)
                if loop is not None:  # the board is made on the main thread
                    loop.add_callback(self._link.within, self._board)
            case "ran":
                ran = self._ran(data.get("count"), str(data.get("source")))
                self._link.send({"kind": "told", "page": data.get("page"), "id": data.get("id"), "ran": ran})
            case _:
                pass  # for others

    def _board(self) -> None:
        from ipyagent.extension.surfaces import live_board

        board = live_board(self._extension)
        board.serve()
        self._link.send({"kind": "board", "mark": board.mark})

    def _ran(self, count: object, source: str) -> bool:
        """Whether this kernel ran this source as input `count`."""
        manager = getattr(self._extension.shell, "history_manager", None)
        inputs = list(manager.input_hist_raw) if manager is not None else []
        return isinstance(count, int) and 0 < count < len(inputs) and inputs[count].rstrip() == source.rstrip()


SHORT = "agent"
LINES = {"context": "line", "compact": "line", "memory": "line_cell", "skills": "line"}
"""Magics beside `%agent` with their kinds; each is also a command of it."""
_ATTRIBUTE = "_ipyagent_extension"


class TurnFailed(AgentError):
    """The agent's turn failed; raised so that Run All and papermill stop there."""


class Magics(Extension):
    """What one shell has once the extension is loaded: its magics, completions and cell transformer."""

    def __init__(self, shell: Any) -> None:
        super().__init__(shell)
        self._registered: list[tuple[str, str]] = []
        self._transformer: CellTransformer | None = None
        self._completions: Any = None
        self._followed: tuple[tuple[str, Callable[..., None]], ...] = (
            ("pre_run_cell", self._warm_up.cell_begins),
            ("pre_run_cell", keep_logs_apart),
            ("pre_run_cell", self._runs.note),
            ("post_run_cell", self._warm_up.cell_ends),
            ("post_run_cell", self._runs.note_end),
        )
        self.companion: Companion | None = None
        self._asked_by = ("", 0)
        """The notebook cell and the execution that the newest request came from."""

    # ------------------------------------------------------------------ loading

    def load(self) -> None:
        """Register everything; says so when another extension owns a name already."""
        owned = self.shell.magics_manager.magics
        if SHORT in owned["cell"] or SHORT in owned["line"]:
            _say("%agent belongs to another extension here; use %%ipyagent and %ipyagent")
        else:
            self.names.append(SHORT)
        for name in self.names:
            self._register("line_cell", name, _called(self.agent), Magics.agent.__doc__)
            self._register("cell", f"{name}_async", lambda line, cell: self.agent_async(line, cell), "")
        for name, kind in LINES.items():
            if any(name in owned[each] for each in kind.split("_")):
                _say(f"%{name} belongs to another extension here; use %ipyagent {name}")
            else:
                method = getattr(self, name)
                self._register(kind, name, _called(method), method.__doc__)
        own = {name for _, name in self._registered}
        self._transformer = CellTransformer(self.shell, self.names, [name for name in LINES if name in own])
        self.shell.input_transformers_cleanup.insert(0, self._transformer)
        self.shell.configurables.append(self.settings)
        self.shell.events.register("post_run_cell", self._loaded)
        for event, function in self._followed:
            self.shell.events.register(event, function)
        from ipyagent.extension.completion import Completions

        memories = self._memory_names if "memory" in own else None
        self._completions = Completions(self.shell, self.names, memories, self._skill_names, self._command_names)
        self._completions.register()
        words = f"model: {self.settings.model_words}, mode {self.settings.mode}"
        _say(f"{words}; %{self.names[-1]} help lists the commands")

    def unload(self) -> None:
        """Take everything back and let go of the session."""
        from ipyagent.kernel.frontend import forget_clicks
        from ipyagent.kernel.page import close_link

        events = self.shell.events
        with ExitStack() as steps:  # the last comes first; what somebody else took away already skips none
            if (kernel := getattr(self.shell, "kernel", None)) is not None:
                steps.callback(forget_clicks, kernel)
            steps.callback(close_link, self.shell)
            if self._agent is not None:
                steps.callback(self._agent.close)
            if self.board is not None:
                steps.callback(self.board.close)
            for kind, name in self._registered:
                steps.callback(self.shell.magics_manager.magics[kind].pop, name, None)
                steps.callback(vars(self.shell.magics_manager.user_magics).pop, name, None)
            told = [("post_run_cell", self.companion.tell)] if self.companion is not None else []
            # unloaded in the cell that loaded it, perhaps
            for event, function in (("post_run_cell", self._loaded), *told, *self._followed):
                if function in events.callbacks[event]:
                    steps.callback(events.unregister, event, function)
            steps.callback(self._completions.unregister)
            transformers = self.shell.input_transformers_cleanup
            for held, own in ((self.shell.configurables, self.settings), (transformers, self._transformer)):
                if own in held:
                    steps.callback(held.remove, own)
        self._registered.clear()
        self._agent = self.board = None

    def _register(self, kind: str, name: str, function: Callable[..., Any], doc: str | None) -> None:
        """Register a magic whose line is taken as it is; `doc` is what `%name?` shows."""
        function.__doc__ = doc
        self.shell.register_magic_function(literal(function), kind, name)
        self._registered += [(each, name) for each in (("line", "cell") if kind == "line_cell" else (kind,))]

    def _loaded(self, result: Any = None) -> None:
        """The loading cell has ended: from here on there is time."""
        self.shell.events.unregister("post_run_cell", self._loaded)
        loop = getattr(getattr(self.shell, "kernel", None), "io_loop", None)
        if loop is not None:
            loop.add_callback(self._meet_pages)  # when the cell is done
        self._warm_up.start()

    def _meet_pages(self) -> None:
        """Have pages with our companion know that the agent is here."""
        from ipyagent.kernel.page import open_link

        if self._registered and (link := open_link(self.shell)) is not None:  # else unloaded meanwhile
            self.companion = Companion(self, link)
            self.companion.tell()
            self.shell.events.register("post_run_cell", self.companion.tell)

    # ------------------------------------------------------------------ the magics

    def agent(self, line: str, cell: str | None = None) -> None:
        """Ask the agent: `%%agent [options]` with the request below it; `%agent COMMAND` for the rest.

        `%agent help` lists options and commands, `%config IPyAgent` the settings.
        """
        # The blocking form: line magics, and cells where nobody awaits (`%%time`, `%%capture`, scripts).
        self._warm_up.wait()
        own: str | None = None
        if cell is None:
            from ipyagent.extension.commands import run_command

            request = run_command(self, line)
            if request is None:
                return
            line, (cell, own) = "", request
        elif not cell.strip():
            line, cell = one_line(line)
        chosen = parse(line)
        turn = self._prepared(chosen, cell, own)
        if turn is not None:
            self._after(turn.run_blocking(), chosen)

    async def agent_async(self, line: str, cell: str) -> None:
        """`%%agent` at top level: the same, awaited."""
        from ipyagent.kernel.interrupts import raising_sigint

        try:
            if not cell.strip():
                line, cell = one_line(line)
            chosen = parse(line)
            with raising_sigint():
                self._warm_up.wait()
            turn = self._prepared(chosen, cell)
            if turn is not None:
                self._after(await turn.run(), chosen)
        except (asyncio.CancelledError, KeyboardInterrupt):
            # the first: it came before SIGINT was ours, and ipykernel cancels what awaits
            from ipyagent.kernel.dispatcher import interruption

            raise interruption() from None

    def context(self, line: str) -> None:
        """`%context [--raw] [--at N] [--turns] [--panel]`: what the model would be sent now, or was at
        turn N, and what it costs; the turns with their numbers; the timeline of the session.
        """
        self._run("context", line)

    def compact(self, line: str) -> None:
        """`%compact [wishes] [--from N] [--up-to N] [--snip A:B] [--step] [--dry-run] [--undo]`: make room in
        the context. N, A and B are turns, counted from 1; `--step` has one layer act, the cheapest that can."""
        self._run("compact", line)

    def _memory_names(self) -> list[str]:
        from ipyagent.parts.memory.commands import names

        return names(self.agent_now)

    def memory(self, line: str, cell: str | None = None) -> None:
        """`%memory`: what outlives a session. `%memory help` lists its commands; `%%memory add` and
        `%%memory edit NAME` take the text below them.
        """
        from ipyagent.parts.memory.commands import show_memory

        if answer := show_memory(self.agent_now, line, cell):
            self.tell(answer)

    def _command_names(self) -> list[str]:
        from ipyagent.extension.commands import commands_of

        return list(commands_of(self.agent_now))

    def _skill_names(self) -> list[str]:
        from ipyagent.parts.skills import names

        return names(self.agent_now)

    def skills(self, line: str) -> None:
        """`%skills`: instructions for kinds of work; `%skills help` lists its commands. `/name` at the start of a
        request loads one."""
        self._run("skills", line)

    def _run(self, command: str, line: str) -> None:
        from ipyagent.extension.commands import run_command

        run_command(self, f"{command} {line}")

    # ------------------------------------------------------------------ around a turn

    def _prepared(self, chosen: CellOptions, cell: str, own: str | None = None) -> PreparedTurn | None:
        """The turn, ready to run: asked, or replayed; None when a stored answer was shown instead."""
        from ipyagent.extension.surfaces import surface_of

        agent, text, ident = self.agent_now, cell.rstrip("\n"), self._cell_id()
        way = self._way(chosen)
        recording, why = None, "nothing is recorded for this cell as it is now"
        headless = not (self.front.person or self.front.can_input)
        try:
            if way != "always":
                recording = agent.recorded(text, ident, again=way == "replay", headless=headless)
        except (TrustError, UsageError) as problem:
            if chosen.replay or (way == "replay" and isinstance(problem, UsageError)):
                self._show_notices(agent)
                raise
            why = str(problem)
            if way != "replay":
                agent.notices.append(why)
        if recording is None and chosen.replay:
            self._show_notices(agent)
            raise UsageError("--replay: nothing is recorded for this cell as it is now (it is new, was changed, or "
                             "did not finish); leave out --replay to ask the model")  # fmt: skip
        if recording is not None and way == "answer":
            self._answer(agent, recording)
            return None
        try:
            surface = surface_of(self, ident, quiet=chosen.quiet, recording=recording)
            if recording is not None:
                return agent.prepare_replay(recording, _options(chosen), surface, cell=ident)
            if way == "replay":
                agent.notices.append(f"{why}; the model is asked")
            self._offer_rollback(agent, chosen)
            return agent.prepare(text, _options(chosen), surface, cell=ident, own=own)
        finally:
            self._show_notices(agent)

    def _way(self, chosen: CellOptions) -> str:
        """What an unchanged cell does: "replay" whenever there is a recording, "auto" the same once a kernel, "answer"
        (its stored answer is shown), "always" (asked)."""
        if chosen.replay or chosen.rerun:
            return "replay" if chosen.replay else "always"
        live = self.settings.rerun == "replay" or self.front.person
        return self.settings.rerun if live else "always"

    def _offer_rollback(self, agent: Agent, chosen: CellOptions) -> None:
        """A cell that is asked again: say how its old turn is taken back. Nothing is taken back by itself, and the
        second request of one execution (of a loop, say) takes the place of none."""
        from ipyagent.extension.work_cells import offer

        cell = self._cell_id()
        before, self._asked_by = self._asked_by, (cell, self.shell.execution_count)
        if self._asked_by == before or not cell:
            return
        if not (chosen.fresh or chosen.fork) and self.front.person:
            agent.notices += filter(None, [offer(agent, cell)])

    def _cell_id(self) -> str:
        from ipyagent.kernel.frontend import running_cell

        return running_cell(self.shell)

    def _answer(self, agent: Agent, recording: Recording) -> None:
        """Show the stored answer of an unchanged cell instead of paying for it again."""
        from ipyagent.ui.static import static_bundle

        self._show_notices(agent)
        self.shell.display_pub.publish(static_bundle(recording.events, None))
        known = agent.session.history.variables if agent.session is not None else {}
        gone = [name for name in known if name not in self.shell.user_ns]
        lost = f"; variables no longer there: {', '.join(gone[:8])}{' …' if len(gone) > 8 else ''}" if gone else ""
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(recording.ended.at))
        self.show(f"unchanged since it was answered, {when}{lost}; to ask again: %%agent --rerun")

    def _show_notices(self, agent: Agent) -> None:
        from ipyagent.escape import line

        for notice in agent.take_notices():
            self.tell(f"ipyagent: {line(notice)}")

    def _after(self, result: TurnResult, chosen: CellOptions) -> None:
        """Show a quiet turn's answer; raise when whoever runs the notebook must not go on."""
        if chosen.quiet and result.text:
            from ipyagent.escape import plain
            from ipyagent.ui.markdown import harmless

            self.shell.display_pub.publish({"text/markdown": harmless(result.text), "text/plain": plain(result.text)})
        self._show_notices(self.agent_now)
        if result.status == "failed" or (result.status == "refused" and not self.front.can_input):
            shown = self.front.person and not chosen.quiet
            raise TurnFailed("the agent's turn failed, see above" if shown else result.message)


def _called(method: Callable[..., Any]) -> Callable[..., Any]:
    """A function of its own around a method, which takes a docstring. An interrupt, wherever it meets us, is one line:
    IPython takes seconds to colour our frames, and the cell is not idle before that."""

    def call(line: str, cell: str | None = None) -> Any:
        try:
            return method(line) if cell is None else method(line, cell)
        except KeyboardInterrupt:
            from ipyagent.kernel.dispatcher import interruption

            raise interruption() from None

    return call


def _say(line: str) -> None:
    Extension.show(f"ipyagent: {line}")


def _options(chosen: CellOptions) -> Options:
    from ipyagent.assembly.requests import Options

    return Options(
        model=chosen.model,
        max_turns=chosen.max_turns,
        effort=chosen.effort,
        mode=chosen.mode or None,  # type: ignore[arg-type] # `parse` lets only modes through
        fresh=chosen.fresh,
        fork=chosen.fork,
        lesson=chosen.lesson,
    )


def load(shell: Any) -> None:
    """Register the magics in a shell, once."""
    if not isinstance(getattr(shell, _ATTRIBUTE, None), Magics):
        extension = Magics(shell)
        extension.load()
        setattr(shell, _ATTRIBUTE, extension)


def unload(shell: Any) -> None:
    """Take back what `load` did."""
    extension = getattr(shell, _ATTRIBUTE, None)
    if isinstance(extension, Magics):
        extension.unload()
        delattr(shell, _ATTRIBUTE)
