"""`@tool`: a typed, documented function becomes a tool of the model.

The schema comes from the signature and the docstring and from nothing else, with a stable key
order: the same function gives the same bytes in every session. What the model sends is checked
against it before anything runs. A parameter named `workspace` is injected and not in the schema."""

from __future__ import annotations

import ast
import inspect
import json
import re
import shutil
import sys
import textwrap
import traceback
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cached_property, partial, update_wrapper
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar, overload

import msgspec

from ipyagent.errors import ToolFailure, UsageError
from ipyagent.escape import cut
from ipyagent.journal.protocols import Needed, ObjectRef, Permission, PermissionQuestion, ToolOutput, Workspace
from ipyagent.tools.answers import text_block, to_output

if TYPE_CHECKING:
    from pydantic import BaseModel
    from pydantic_core import ErrorDetails


# ---- What a function's signature says of a tool: types of its parameters, the schema in stable order, and what is
# wrong with given arguments, in one line each.

def doc_of(function: Any) -> str:
    """A function's docstring, cleaned, "" for none; read from its source where Python was told to drop docstrings
    (`-OO`, PYTHONOPTIMIZE=2): what the model and the help say must not depend on that."""
    if doc := inspect.getdoc(function):
        return doc
    if sys.flags.optimize < 2:
        return ""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError):  # no source, or no function
        return ""
    first = tree.body[0] if tree.body else None
    return ast.get_docstring(first) or "" if isinstance(first, ast.FunctionDef | ast.AsyncFunctionDef) else ""


def types_of(function: Callable[..., Any], parameters: Mapping[str, inspect.Parameter]) -> dict[str, Any]:
    """Each parameter's type, strings resolved where the function was written. The return type
    is left alone: it may name things that exist for the type checker only."""
    inner = inspect.unwrap(function)
    code = getattr(inner, "__code__", types_of.__code__)
    closure = dict(zip(code.co_freevars, inner.__closure__ or (), strict=False))
    names = {}
    for key, cell in closure.items():
        try:
            names[key] = cell.cell_contents
        except ValueError:  # a name of the enclosing function that has no value yet
            continue

    class Signature:
        __annotations__ = {key: parameter.annotation for key, parameter in parameters.items()}

    try:
        return typing.get_type_hints(
            Signature, globalns=getattr(inner, "__globals__", {}), localns=names, include_extras=True
        )
    except NameError as problem:
        raise UsageError(f"tool {function.__name__!r}: a parameter's type is not known: {problem}") from None


def tidied(node: Any) -> Any:
    """A schema node with what tells the model how to call, and nothing else: no titles, no
    `additionalProperties` that is only yes or no, no null for what may be left out, a default in words. Keys are
    sorted; names of properties keep their order. What is accepted is decided by the signature, not by this."""
    if isinstance(node, list):
        return [tidied(item) for item in node]
    if not isinstance(node, dict):
        return node
    tidy: dict[str, Any] = {}
    for key in sorted(node):
        value = node[key]
        if key == "default" or (key == "title" and isinstance(value, str)):
            continue
        if key == "additionalProperties" and isinstance(value, bool):
            continue
        if key == "properties" and isinstance(value, dict):
            needed = node.get("required") or ()
            tidy[key] = {name: tidied(child if name in needed else _optional(child)) for name, child in value.items()}
        elif key == "$defs" and isinstance(value, dict):
            tidy[key] = {name: tidied(child) for name, child in value.items()}
        else:
            tidy[key] = value if key in ("enum", "const", "examples", "required") else tidied(value)
    return tidy


def _optional(node: Any) -> Any:
    """A property that may be left out: without the null that stands for that, of one or several the list, its default
    told in words when it says more than "nothing", "no" or, as -1 does, "not given"."""
    if not isinstance(node, dict):
        return node
    node = dict(node)
    choices = node.get("anyOf")
    if isinstance(choices, list):
        lists = [choice["items"] for choice in choices if isinstance(choice, dict) and "items" in choice]
        # neither null, nor one item where a list of them is taken
        left = [choice for choice in choices if choice != {"type": "null"} and choice not in lists]
        if len(left) == 1 and isinstance(left[0], dict):
            node = {**left[0], **{key: value for key, value in node.items() if key != "anyOf"}}
        else:
            node["anyOf"] = left
    text, default = str(node.get("description", "")), node.get("default")
    if isinstance(default, str | int | float) and default not in ("", 0, -1) and str(default) not in text:
        node["description"] = f"{text.removesuffix('.')} (default {default!r}){'.' * text.endswith('.')}".strip()
    return node


_OWN_LINE = re.compile(r"\s|[-*•+>] |>>>|\||#+ |\d+[.)] |```")
"""How a line begins that is not the wrapped rest of the one before: a list, code, a table, a heading."""
_ENDS = re.compile(r"[.!?:;…。！？：\"`)|]$|^\s|^[|#]|^```")


def unwrapped(text: str) -> str:
    """A docstring's text with each sentence in one line: wrapped lines are joined, also over an empty line in the
    middle of a sentence; lists, tables, code and indented lines stay as they are."""
    kept: list[str] = []
    gap = fenced = False
    for line in map(str.rstrip, text.strip().splitlines()):
        if not line and not fenced:
            gap = True
            continue
        own, before = fenced or bool(_OWN_LINE.match(line)), kept[-1] if kept else ""
        # an empty line may stand in the middle of a sentence
        goes_on = line[:1].islower() and not _ENDS.search(before) if gap else not re.match(r"\s|[|#]|```", before)
        if before and not own and goes_on:
            kept[-1] = f"{before} {line}"
        else:
            kept += [""] * (gap and bool(kept)) + [line]
        fenced ^= line.startswith("```")
        gap = False
    return "\n".join(kept)


def lines_of(errors: Iterable[ErrorDetails], given: object, parameters: Mapping[str, inspect.Parameter]) -> list[str]:
    """A line for each place where pydantic found an error: the place, what is wrong, what was given."""
    wrong: dict[str, tuple[str, str]] = {}
    for error in errors:
        loc, value = list[str](), given
        for part in error["loc"]:
            if isinstance(value, dict):
                value = value.get(part, value)  # or the type that was tried: the value is its
            elif isinstance(value, list) and isinstance(part, int):
                value = value[part] if part < len(value) else None
            elif error["type"] != "missing" or isinstance(value, list):
                continue  # of several types that are possible, the one that was tried
            loc.append(str(part))
        place = ".".join(loc) or "arguments"
        what, got = error["msg"].partition(", unable to parse")[0], ""
        if error["type"] == "missing":
            what = "missing"
        elif error["type"] == "extra_forbidden" and len(loc) == 1:
            what = f"no such argument; allowed: {', '.join(parameters) or 'none'}"
        else:
            value = error["input"]
            shown = repr(value) if isinstance(value, (str, int, float, bool)) else type(value).__name__
            got = f", got {cut(shown, 80)}"
        if place in wrong and wrong[place][0] != what:
            what = f"{wrong[place][0]} or {what.removeprefix('Input should be ')}"
        wrong[place] = what, got
    return [f"`{place}`: {what}{got}" for place, (what, got) in wrong.items()]


def without_nulls(given: Any, errors: Iterable[ErrorDetails], schema: Mapping[str, Any]) -> Any:
    """What was given without each null that was refused and stands for an argument that may be left out."""
    for error in errors:
        node, place = schema, []
        value, optional = given, False
        for part in error["loc"]:
            if value is None:
                break
            node = schema["$defs"][node["$ref"].rpartition("/")[2]] if "$ref" in node else node
            named = node.get("properties", {})
            optional = part in named and part not in node.get("required", ())
            node = node.get("items", {}) if isinstance(part, int) else named.get(part, {})
            try:
                value = value[part]
            except (TypeError, LookupError):
                optional = False
                break
            place.append(part)
        if value is None and optional:
            given = _without(given, place)
    return given


def _without(given: Any, place: Sequence[Any]) -> Any:
    key, *inner = place
    if not inner:
        return {name: value for name, value in given.items() if name != key}
    copy = given.copy()
    copy[key] = _without(given[key], inner)
    return copy


Arguments: TypeAlias = dict[str, Any]
T = TypeVar("T")
Rule: TypeAlias = T | Callable[[Arguments, Workspace], T]
"""A fixed value, or a function of this very call's arguments (defaults filled in)."""

ABOUT = frozenset(("description", "explanation", "reason", "timeout"))
"""Arguments that models give to tools that do not have them, and without which a call does the same: the tool is called
without them and says so. Any other that it does not have is refused: it could have meant `dry_run`."""
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_INJECTED = "workspace"
_ESCAPED = re.compile(r"\[([*?[])\]")


class FunctionTool:
    """A `Tool` made of a function; calling it calls the function."""

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        name: str,
        permission: Rule[Permission],
        parallel: bool,
        recreatable: bool,
        writes: Rule[bool],
        pattern: Rule[str],
        question: Callable[[Arguments, Workspace], PermissionQuestion] | None,
        destructive: Rule[str],
        covers: Callable[[str, Arguments, Workspace], bool] | None,
        sandboxed: Callable[[Arguments, Workspace], Needed] | None,
        store_chars: int | None,
        deferred: str,
    ) -> None:
        name = name or getattr(function, "__name__", "")
        if not _NAME.fullmatch(name):
            raise UsageError(f"a tool's name is 1 to 64 of a-z, A-Z, 0-9, _ and -; {name!r} is not")
        self.name = name
        self.parallel = parallel
        self.recreatable = recreatable
        self.store_chars = store_chars
        self.deferred = deferred
        self.function = function
        self._permission = permission
        self._writes = writes
        self._pattern = pattern
        self._question = question
        self._destructive = destructive
        self._covers = covers
        self._sandboxed = sandboxed
        signature = inspect.signature(function)
        self._parameters = {key: value for key, value in signature.parameters.items() if key != _INJECTED}
        self._takes_workspace = _INJECTED in signature.parameters
        if self._takes_workspace and "Workspace" not in str(signature.parameters[_INJECTED].annotation):
            raise UsageError(f"tool {name!r}: the model cannot give a parameter {_INJECTED!r}: give it another name")
        for key, parameter in self._parameters.items():
            if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
                raise UsageError(f"tool {name!r}: parameter {key!r} must have a name: no /, *args or **kwargs")
            if parameter.annotation is parameter.empty:
                raise UsageError(f"tool {name!r}: give parameter {key!r} a type, for example `{key}: str`")
        if not doc_of(function):
            raise UsageError(f"tool {name!r} needs a docstring: the model knows the tool only by it")
        update_wrapper(self, function, updated=())  # not its attributes: they could hide ours

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<tool {self.name}({', '.join(self._parameters)})>"

    # ------------------------------------------------------------------ what the model knows

    @cached_property
    def _docs(self) -> tuple[str, Mapping[str, str]]:
        from docstring_parser import parse

        parsed = parse(doc_of(self.function))
        texts = {entry.arg_name: " ".join((entry.description or "").split()) for entry in parsed.params}
        # The parser takes the first line for a summary, also where the first sentence goes on in the second.
        between = "\n\n" if parsed.blank_after_short_description else "\n"
        about = between.join(part for part in (parsed.short_description, parsed.long_description) if part)
        if parsed.returns and parsed.returns.description:
            about += "\n\nReturns: " + " ".join(parsed.returns.description.split())
        return unwrapped(about), texts

    @cached_property
    def description(self) -> str:
        """The docstring without its `Args:` section, each sentence in one line."""
        return self._docs[0]

    @cached_property
    def _model(self) -> type[BaseModel]:
        from pydantic import ConfigDict, Field, create_model

        # Fields are a0, a1, … with the parameter's name as alias: a parameter may then be called
        # `copy`, `schema` or `_x`, which as field names would clash with pydantic's own.
        fields: dict[str, Any] = {}
        types = types_of(self.function, self._parameters)
        for number, (key, parameter) in enumerate(self._parameters.items()):
            default = ... if parameter.default is parameter.empty else parameter.default
            about = self._docs[1].get(key) or None
            fields[f"a{number}"] = (types[key], Field(default, alias=key, description=about))
        config = ConfigDict(extra="forbid", arbitrary_types_allowed=True)
        return create_model(self.name, __config__=config, **fields)

    @cached_property
    def input_schema(self) -> dict[str, Any]:
        """JSON schema of the arguments, see `tidied`; keys in a stable order."""
        schema = tidied(self._model.model_json_schema())
        return {"type": "object", "properties": {}, **schema}

    # ------------------------------------------------------------------ this very call

    def validate(self, input: Arguments) -> Arguments:
        """The given arguments, checked, as JSON values; those that are left out when it runs (`ABOUT`) stay among
        them. Raises ToolFailure."""
        checked = self._parsed(input).model_dump(
            mode="json", by_alias=True, exclude_unset=True, warnings=False, fallback=str
        )
        return {**checked, **{key: input[key] for key in self._ignored(input)}}

    def arguments(self, input: Arguments) -> Arguments:
        """All arguments as Python values, defaults filled in; raises ToolFailure."""
        parsed = self._parsed(input)
        return {key: getattr(parsed, f"a{number}") for number, key in enumerate(self._parameters)}

    def _ignored(self, input: Arguments) -> list[str]:
        return [key for key in input if key in ABOUT and key not in self._parameters]

    def _parsed(self, input: Arguments) -> BaseModel:
        from pydantic import ValidationError

        given = input
        if isinstance(input, dict) and (ignored := self._ignored(input)):
            given = {key: value for key, value in input.items() if key not in ignored}
        try:
            return self._model.model_validate(given)
        except ValidationError as problem:
            errors = problem.errors(include_url=False)
        if (left := without_nulls(given, errors, self.input_schema)) is not given:
            return self._parsed(left)
        lines = lines_of(errors, given, self._parameters)
        if self.deferred:  # the model may not have looked at the schema
            schema, wrong = self.input_schema, {error["loc"][0] for error in errors if error["loc"]}
            named = schema["properties"]
            if wrong <= named.keys() and not any(error["type"] == "missing" for error in errors):
                known = {key: value for key, value in schema.items() if key == "$defs"}  # it knows the others
                schema = {"properties": {key: value for key, value in named.items() if key in wrong}, **known}
            lines.append(f"The arguments, as JSON schema: {json.dumps(schema, ensure_ascii=False)}")
        raise ToolFailure(f"{self.name}: wrong arguments\n" + "\n".join(lines)) from None

    def permission(self, input: Arguments, workspace: Workspace) -> Permission:
        """Whether this very call needs a yes in mode "ask"."""
        return self._settled(self._permission, input, workspace)

    def writes(self, input: Arguments, workspace: Workspace) -> bool:
        """Whether this very call may change anything."""
        return self._settled(self._writes, input, workspace)

    def destructive(self, input: Arguments, workspace: Workspace) -> str:
        """Why this call needs a yes even in mode "auto" ("" when it does not)."""
        return self._settled(self._destructive, input, workspace)

    def pattern(self, input: Arguments, workspace: Workspace) -> str:
        """The rule that covers this call and its like; the tool's name unless told otherwise."""
        return self._settled(self._pattern, input, workspace) or self.name

    def question(self, input: Arguments, workspace: Workspace) -> PermissionQuestion:
        """What the user is asked; by default the call as Python would write it."""
        if self._question is not None:
            return self._question(self.arguments(input), workspace)
        given = ",\n".join(f"    {key}={value!r}" for key, value in input.items())
        return PermissionQuestion(title=f"Call {self.name}?", text=f"{self.name}(\n{given}\n)", language="python")

    def sandboxed(self, input: Arguments, workspace: Workspace) -> Needed | None:
        """The sandbox level that this very call needs; None for a tool that knows no levels."""
        return self._sandboxed(self.arguments(input), workspace) if self._sandboxed is not None else None

    def covers(self, rule: str, input: Arguments, workspace: Workspace) -> bool:
        """Whether `rule`, the text in the parentheses of a permission rule, covers this call: by
        default when it matches the text in the parentheses of `pattern` as a glob."""
        if self._covers is not None:
            return self._covers(rule, self.arguments(input), workspace)
        subject = self.pattern(input, workspace).removeprefix(self.name).removeprefix("(").removesuffix(")")
        return fnmatchcase(_ESCAPED.sub(r"\1", subject), rule)

    def _settled(self, rule: Rule[T], input: Arguments, workspace: Workspace) -> T:
        if callable(rule):
            return rule(self.arguments(input), workspace)
        return rule

    async def run(self, input: Arguments, workspace: Workspace) -> ToolOutput:
        """Call the function: a coroutine function on the agent thread, any other on the main
        thread, where it may touch the user's namespace. Raises ToolFailure."""
        given = self.arguments(input)
        if self._takes_workspace:
            given[_INJECTED] = workspace
        limit = workspace.limit("tool_output_chars")
        try:
            if inspect.iscoroutinefunction(self.function):
                output = to_output(await self.function(**given), limit)
            else:
                value = await workspace.on_main(partial(_called, self.function, given, limit))
                output = value if isinstance(value, ToolOutput) else to_output(await value, limit)
        except ToolFailure:
            raise
        except Exception as problem:
            raise ToolFailure(_trimmed(problem, self.function)) from problem
        if not (ignored := self._ignored(input)):
            return output
        told = f"[ignored, {self.name} has no such argument: {', '.join(ignored)}]"
        live = None if output.live is None else ObjectRef(output.live.value, alone=False)
        return msgspec.structs.replace(output, blocks=(*output.blocks, text_block(told)), live=live)


def _called(function: Callable[..., Any], given: Arguments, limit: int) -> Any:
    value = function(**given)
    # An awaitable goes back to the agent thread; everything else is read here, on the thread
    # that owns it.
    return value if inspect.isawaitable(value) else to_output(value, limit)


def _trimmed(problem: Exception, function: Callable[..., Any]) -> str:
    """The error and the frames from the tool's own function on."""
    frames = traceback.extract_tb(problem.__traceback__)
    code = getattr(inspect.unwrap(function), "__code__", None)
    own = next((n for n, frame in enumerate(frames) if code and frame.filename == code.co_filename), len(frames))
    where = "".join(traceback.format_list(frames[own:][-5:]))
    what = "".join(traceback.format_exception_only(problem)).strip()
    return f"{where}{what}" if where else what


@overload
def tool(function: Callable[..., Any], /) -> FunctionTool: ...


@overload
def tool(
    *,
    name: str = "",
    permission: Rule[Permission] = "ask",
    parallel: bool = False,
    recreatable: bool = False,
    writes: Rule[bool] = True,
    pattern: Rule[str] = "",
    question: Callable[[Arguments, Workspace], PermissionQuestion] | None = None,
    destructive: Rule[str] = "",
    covers: Callable[[str, Arguments, Workspace], bool] | None = None,
    sandboxed: Callable[[Arguments, Workspace], Needed] | None = None,
    store_chars: int | None = None,
    deferred: str = "",
) -> Callable[[Callable[..., Any]], FunctionTool]: ...


def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str = "",
    permission: Rule[Literal["none", "ask"]] = "ask",
    parallel: bool = False,
    recreatable: bool = False,
    writes: Rule[bool] = True,
    pattern: Rule[str] = "",
    question: Callable[[Arguments, Workspace], PermissionQuestion] | None = None,
    destructive: Rule[str] = "",
    covers: Callable[[str, Arguments, Workspace], bool] | None = None,
    sandboxed: Callable[[Arguments, Workspace], Needed] | None = None,
    store_chars: int | None = None,
    deferred: str = "",
) -> FunctionTool | Callable[[Callable[..., Any]], FunctionTool]:
    """Make a typed, documented function a tool: `@tool`, or `@tool(permission="none", …)`.

    The model reads the function's docstring, and its `Args:` section for each parameter. Raises UsageError for a
    function that cannot be a tool: without a docstring, or with a parameter that has no type.

    Args:
        name: the tool's name; the function's name by default.
        permission: "none" runs without a question, "ask" asks in mode `ask`.
        writes: False if it changes nothing, so that it may run in mode `read_only`.
        parallel: calls of one message may run side by side.
        recreatable: old results may be cleared from the context, because the tool can run again.
        pattern: what a permission rule for the call matches, such as the path or the command.
        question: makes the question that is shown to the user.
        destructive: why the call is destructive ("" if it is not); it then asks in mode `auto` too.
        covers: whether a rule covers a call.
        store_chars: size from which a result is kept in a file with a preview in the context, in characters of English
            prose (2.9 a token, as in `ipyagent.journal.tokens`); None is the setting `store_chars`.
        deferred: for a tool that is seldom used, a few words on what it is for. Only these are in each request; the
            model finds the tool with `tool_search`.

    `permission`, `writes`, `pattern` and `destructive` may be functions of the arguments and the workspace.
    """

    made = partial(
        FunctionTool, name=name, permission=permission, parallel=parallel, recreatable=recreatable, writes=writes,
        pattern=pattern, question=question, destructive=destructive, covers=covers, sandboxed=sandboxed,
        store_chars=store_chars, deferred=deferred,
    )  # fmt: skip
    return made if function is None else made(function)


def help_text(head: Sequence[str], groups: Iterable[tuple[str, Sequence[tuple[str, str]]]], width: int = 0) -> str:
    """Commands with what they do, in groups under a title ("": none), in lines of at most `width` columns (0: those of
    the terminal, else 100). No word is broken: a longer one has a line of its own."""
    columns = max(40, min(width or shutil.get_terminal_size((101, 24)).columns - 1, 120))  # the last breaks the line

    def wrapped(text: str, first: str, rest: str) -> list[str]:
        return textwrap.wrap(
            text, columns, initial_indent=first, subsequent_indent=rest, break_long_words=False, break_on_hyphens=False
        )

    lines = [row for each in head for row in wrapped(each, "", "    " if each.startswith("%") else "")]
    listed = [(title, rows) for title, rows in groups if rows]
    side = min(max((len(usage) for _, rows in listed for usage, _ in rows), default=0), columns * 2 // 5)
    for title, rows in listed:
        lines += ["", *([title] if title else [])]
        for usage, about in rows:
            start = "  " + usage.ljust(side) + "  "
            if len(usage) > side:  # it does not fit beside its text
                lines += wrapped(usage, "  ", "      ")
                start = " " * (side + 4)
            lines += wrapped(about, start, " " * (side + 4))
    return "\n".join(lines)
