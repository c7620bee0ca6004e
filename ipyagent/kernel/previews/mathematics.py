"""Mathematical objects: expressions, quantities with units, geometries, graphs, distributions. Told by what they are
worth; an expression or geometry that is too large to print is told by its size."""

from __future__ import annotations

import sys
from typing import Any

from ipyagent.escape import counted
from ipyagent.kernel.previews._context import (
    MISSING,
    Group,
    PreviewContext,
    PreviewHandler,
    TypeInfo,
    class_name,
    clip,
    facts,
    instance_dict,
    library_name,
    loaded,
    of_library,
    one_line,
    slots,
    stored,
)

MOST_PARTS = 200
"""Parts of an expression that is printed."""
MOST_POINTS = 1_000
"""Points of a geometry that is printed as WKT; of MOST_MEASURED the bounds are computed."""
MOST_MEASURED = 1_000_000
MOST_NODES = 100_000
"""Nodes of a graph whose edges are counted."""


# ---------------------------------------------------------------------- sympy


def _is_symbolic(kind: TypeInfo) -> bool:
    return kind.is_library("sympy.core.basic", "Basic") or kind.is_library("sympy.matrices.matrixbase", "MatrixBase")


def _is_sympys(kind: TypeInfo) -> bool:
    # f(x) of Function('f') has a class that sympy made
    made = len(kind.mro) > 1 and kind.mro[1] is loaded("sympy.core.function", "AppliedUndef")
    return made or kind.genuine("sympy")


def _parts(value: Any, look: PreviewContext) -> int:
    """How many parts an expression has; -1 when it has too many, or one that cannot be printed safely."""
    waiting, count = [value], 0
    while waiting:
        part = waiting.pop()
        count += 1
        if count > MOST_PARTS:
            return -1
        if type(part) in (str, int, float, bool):
            continue
        if type(part) in (tuple, list):
            waiting += part[:MOST_PARTS]
            continue
        kind = look.kind(part)
        if not _is_sympys(kind):
            return -1
        own = slots(part)
        number = own.get("p", own.get("_mpf_"))
        if type(number) is int and number.bit_length() > 400:
            return -1
        if type(own.get("q")) is int and own["q"].bit_length() > 400:
            return -1
        if kind.is_library("sympy.matrices.matrixbase", "MatrixBase"):
            waiting += part.flat() if part.rows * part.cols <= 64 else [None]
        else:
            inner = own.get("_args", ())
            waiting += inner if type(inner) is tuple else ()
    return count


def _symbolic(value: Any, look: PreviewContext, width: int) -> str:
    kind = look.kind(value)
    size = ""
    if kind.is_library("sympy.matrices.matrixbase", "MatrixBase") and kind.genuine("sympy"):
        size = f" {value.rows}x{value.cols}"
    if _parts(value, look) < 0:
        return f"sympy {kind.name}{size} (too large to print)" if _is_sympys(kind) else f"sympy {kind.name}"
    return f"sympy {kind.name}{size}: {one_line(str(value))}"


# ---------------------------------------------------------------------- quantities


def _is_pint(kind: TypeInfo) -> bool:
    # a registry makes classes of its own
    return kind.comes_from("pint", "PlainQuantity", "PlainUnit")


def _quantity(value: Any, look: PreviewContext, width: int) -> str:
    own = instance_dict(value)
    said, powers = "", stored(own.get("_units"), "_d")  # pint's own record of units: `meter / second ** 2`
    if look.kind(powers).is_a(dict):
        known = [pair for pair in dict.items(powers) if type(pair[0]) is str and type(pair[1]) in (int, float)]
        over, under = (
            [name if power == sign else f"{name} ** {sign * power:g}" for name, power in known if sign * power > 0]
            for sign in (1, -1)
        )
        said = " / ".join([" * ".join(over) or "1", *under]) if over or under else "dimensionless"
    if "_magnitude" not in own:
        return f"pint Unit {said}"
    return f"pint Quantity {look.line(own['_magnitude'], max(20, width - len(said) - 20))} {said}"


def _uncertain(value: Any, look: PreviewContext, width: int) -> str:
    nominal, deviation = stored(value, "_nominal_value"), stored(value, "_std_dev")
    said = "" if deviation is MISSING else f" ± {look.cell(deviation, 30)}"
    return f"{look.kind(value).name} {look.cell(nominal, 30)}{said} (uncertainties)"


# ---------------------------------------------------------------------- geometries, graphs, distributions


def _geometry(value: Any, look: PreviewContext, width: int) -> str:
    shapely: Any = sys.modules["shapely"]
    name = look.kind(value).name
    points = int(shapely.get_num_coordinates(value))
    if not points:
        return f"shapely {name} EMPTY"
    bounds = " ".join(f"{edge:.6g}" for edge in shapely.bounds(value)) if points <= MOST_MEASURED else "not computed"
    if name == "Point":
        return f"shapely {shapely.to_wkt(value, rounding_precision=6)}"
    told = f"shapely {name}, {points:,} points, bounds {bounds}"
    if points <= MOST_MEASURED:
        for word, measure in (("area", shapely.area(value)), ("length", shapely.length(value))):
            told += f", {word} {measure:.6g}" if measure else ""
    if points > MOST_POINTS:
        return told
    return f"{told}: {shapely.to_wkt(value, rounding_precision=4)}"


def _graph(value: Any, look: PreviewContext, width: int) -> str:
    own = instance_dict(value)
    nodes, edges, facts = own.get("_node"), own.get("_adj"), own.get("graph")
    kind = look.kind(value)
    if type(nodes) is not dict or type(edges) is not dict:
        return f"networkx {kind.name}"
    name = facts.get("name") if type(facts) is dict else None
    told = [f"networkx {kind.name}{f' {name!r}' if type(name) is str and name else ''}", counted(len(nodes), "node")]
    if len(nodes) <= MOST_NODES:
        many = kind.is_library("networkx", "MultiGraph", "MultiDiGraph")
        directed = kind.is_library("networkx", "DiGraph")
        ends = loops = 0
        for node, others in edges.items():
            if type(others) is not dict:
                return ", ".join(told)
            ends += sum(map(len, others.values())) if many else len(others)
            if not directed and node in others:
                loops += len(others[node]) if many else 1
        told.append(counted(ends if directed else (ends + loops) // 2, "edge"))
    first = next(iter(nodes.items()), None)
    text = ", ".join(told)
    if first is not None:
        text += f"; nodes {look.items((look.line(node, 30) for node in list(nodes)[:6]), 60, len(nodes))}"
        if type(first[1]) is dict and first[1]:
            text += f"; a node has {', '.join(look.label(key, 30) for key in list(first[1])[:5])}"
    return text


def _is_view(kind: TypeInfo) -> bool:
    return kind.genuine("networkx") and kind.module == "networkx.classes.reportviews"


def _view(value: Any, look: PreviewContext, width: int) -> str:
    """A graph's view of its nodes, edges or degrees."""
    kind = look.kind(value)
    graph, nodes = stored(value, "_graph"), stored(value, "_nodes")
    if graph is not MISSING:
        return f"networkx {kind.name} of a {look.line(graph, max(20, width - 30))}"
    shown = look.items((look.line(node, 30) for node in list(nodes)[:8]), 90, len(nodes)) if type(nodes) is dict else ""
    return f"networkx {kind.name} of {counted(len(nodes), 'node')}: {shown}" if shown else f"networkx {kind.name}"


def _is_distribution(kind: TypeInfo) -> bool:
    return kind.genuine("scipy") and any(class_name(base) in ("rv_frozen", "multi_rv_frozen") for base in kind.mro)


def _distribution(value: Any, look: PreviewContext, width: int) -> str:
    own = instance_dict(value)
    name = stored(own.get("dist"), "name")
    name = name if type(name) is str else look.kind(value).name
    arguments, named = own.get("args", ()), own.get("kwds", {})
    told = [look.line(part, 30) for part in (arguments if type(arguments) is tuple else ())]
    told += [f"{key}={look.line(part, 30)}" for key, part in (named.items() if type(named) is dict else ())]
    if not told:
        told = [f"{key}={look.line(part, 40)}" for key, part in own.items() if key in ("mean", "cov", "df", "alpha")]
    return f"scipy.stats {name}({', '.join(told)}), frozen distribution"


def _reference(value: Any, look: PreviewContext, width: int) -> str:
    name = stored(value, "srs")
    return f"pyproj CRS {clip(one_line(name), 120)}" if type(name) is str else "pyproj CRS"


FAMILIES = (
    PreviewHandler("expressions", Group.OBJECTS, _is_symbolic, library_name, facts(_symbolic), None, 32),
    PreviewHandler("quantities", Group.SCALARS, _is_pint, library_name, facts(_quantity), None, 14),
    of_library(
        "uncertain numbers", _uncertain, "uncertainties.core", "AffineScalarFunc", group=Group.SCALARS, order=32
    ),
    of_library("geometries", facts(_geometry), "shapely.geometry.base", "BaseGeometry", genuine="shapely", order=32),
    of_library("graphs", facts(_graph), "networkx", "Graph", order=32),
    PreviewHandler("views of graphs", Group.OBJECTS, _is_view, library_name, facts(_view), None, 32),
    PreviewHandler("distributions", Group.OBJECTS, _is_distribution, library_name, facts(_distribution), None, 32),
    of_library("coordinate systems", _reference, "pyproj.crs", "CRS", order=32),
)
