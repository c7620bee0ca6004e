"""`@tool`: a typed, documented function becomes a tool of the model.

The schema comes from the signature and the docstring and from nothing else, with a stable key
order: the same function gives the same bytes in every session. What the model sends is checked
against it before anything runs. A parameter named `workspace` is injected and not in the schema.
"""

from __future__ import annotations

import inspect
import json
import re
import traceback
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from functools import cached_property, partial, update_wrapper
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar, overload

from ipyagent.errors import ToolFailure, UsageError
from ipyagent.journal.protocols import Permission, PermissionQuestion, ToolOutput, Workspace
from ipyagent.tools.answers import to_output
from ipyagent.tools.signature import doc_of, line_of, tidied, types_of, unwrapped

if TYPE_CHECKING:
    from pydantic import BaseModel

Arguments: TypeAlias = dict[str, Any]
T = TypeVar("T")
Rule: TypeAlias = T | Callable[[Arguments, Workspace], T]
"""A fixed value, or a function of this very call's arguments (defaults filled in)."""

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
        covers: Callable[[str, Arguments, Workspace], bool] | None = None,
        store_chars: int | None = None,
        deferred: str = "",
    ) -> None:
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
        """The given arguments, checked, as JSON values; raises ToolFailure."""
        return self._parsed(input).model_dump(
            mode="json", by_alias=True, exclude_unset=True, warnings=False, fallback=str
        )

    def arguments(self, input: Arguments) -> Arguments:
        """All arguments as Python values, defaults filled in; raises ToolFailure."""
        parsed = self._parsed(input)
        return {key: getattr(parsed, f"a{number}") for number, key in enumerate(self._parameters)}

    def _parsed(self, input: Arguments) -> BaseModel:
        from pydantic import ValidationError

        try:
            return self._model.model_validate(input)
        except ValidationError as problem:
            lines = [line_of(error, self._parameters) for error in problem.errors(include_url=False)]
            if self.deferred:  # the model may not have looked at the schema
                lines.append(f"The arguments, as JSON schema: {json.dumps(self.input_schema, ensure_ascii=False)}")
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
                return to_output(await self.function(**given), limit)
            value = await workspace.on_main(partial(_called, self.function, given, limit))
            return value if isinstance(value, ToolOutput) else to_output(await value, limit)
        except ToolFailure:
            raise
        except Exception as problem:
            raise ToolFailure(_trimmed(problem, self.function)) from problem


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
    store_chars: int | None = None,
    deferred: str = "",
) -> FunctionTool | Callable[[Callable[..., Any]], FunctionTool]:
    """Make a typed, documented function a tool: `@tool`, or `@tool(permission="none", …)`.

    The docstring's text is what the model reads of the tool, its `Args:` section of each
    argument. `permission="none"` lets it run without a question, `writes=False` also in mode
    "read_only"; `parallel` lets calls of one message run side by side; `recreatable` lets old
    results leave the context. `permission`, `writes`, `pattern` and `destructive` may be functions
    of (arguments, workspace). Results larger than `store_chars` characters of prose (2.9 a token) are kept in a file,
    with a preview in the context (None: the setting of that name). `deferred`, for a tool that is seldom used, says in
    a few words what it is for: only those stand in the requests, and the model looks it up with `tool_search`. Raises
    UsageError for a function that cannot be a tool.
    """

    def made(function: Callable[..., Any]) -> FunctionTool:
        return FunctionTool(
            function,
            name=name or getattr(function, "__name__", ""),
            permission=permission,
            parallel=parallel,
            recreatable=recreatable,
            writes=writes,
            pattern=pattern,
            question=question,
            destructive=destructive,
            covers=covers,
            store_chars=store_chars,
            deferred=deferred,
        )

    return made if function is None else made(function)
