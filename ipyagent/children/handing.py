"""What a sub-agent hands back: values under names, put into the user's namespace once it has ended well.

Nothing of the user's is overwritten: a name that stands for something else gets a number.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Callable, Mapping
from typing import Any

from ipyagent.kernel.variables import short_types

NAME = "hand_back"
_KEPT = re.compile(r"_.*|In|Out|exit|quit|get_ipython|hand_back")


class ReturnedVariables:
    """The values that one sub-agent wants to hand back. Used on the main thread."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self._namespace: Callable[[], Mapping[str, Any]] = dict

    def function(self, namespace: Callable[[], Mapping[str, Any]]) -> Callable[..., None]:
        """`hand_back`, as code of the sub-agent calls it."""
        self._namespace = namespace
        values = self.values

        def hand_back(*names: str, **named: Any) -> None:
            """Give variables to the user: `hand_back("clean")` or `hand_back(clean=df)`."""
            found = dict(named)
            for name in names:
                if not isinstance(name, str) or name not in namespace():
                    raise NameError(f"hand_back: there is no variable {name!r}; write hand_back(name=value)")
                found[name] = namespace()[name]
            for name in found:
                if not name.isidentifier() or keyword.iskeyword(name) or _KEPT.fullmatch(name):
                    raise ValueError(f"hand_back: {name!r} cannot be a variable of the user's; choose another name")
            values.update(found)

        return hand_back

    def give(self, namespace: dict[str, Any]) -> dict[str, str]:
        """Put all into the user's namespace; the names they have there with the names they were given."""
        given: dict[str, str] = {}
        for name, value in self.values.items():
            free = name
            number = 2
            while free in namespace and namespace[free] is not value:
                free, number = f"{name}_{number}", number + 1
            namespace[free] = value
            given[free] = name
        self.values.clear()
        return given


def told(given: Mapping[str, str], namespace: Mapping[str, Any]) -> str:
    """One line: "handed back: clean (DataFrame 3 x 2), df_2 (int; `df` was the user's)"."""
    types = short_types({name: namespace[name] for name in given if name in namespace})
    parts = []
    for name, wanted in given.items():
        taken = f"; `{wanted}` was taken" if wanted != name else ""
        parts.append(f"{name} ({types.get(name, 'module')}{taken})")
    return ", ".join(parts)
