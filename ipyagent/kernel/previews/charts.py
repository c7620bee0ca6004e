"""What is made to be looked at: charts, tables for print, maps, pictures and widgets, told by marks, axes, titles and
sizes. Read from what the objects store: nothing is drawn, compiled or loaded."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from ipyagent.escape import counted
from ipyagent.kernel.html_text import MOST_HTML, markdown_of
from ipyagent.kernel.previews._context import (
    MISSING,
    Group,
    PreviewContext,
    PreviewHandler,
    TypeInfo,
    class_dict,
    clip,
    facts,
    instance_dict,
    library_name,
    listed,
    of_library,
    one_line,
    pairs,
    stored,
)

MOST_PARTS = 12
"""Traces, layers, axes or widgets of one object that are told; the others are counted."""
_ITEM_BYTES = {"f8": 8, "i8": 8, "u8": 8, "f4": 4, "i4": 4, "u4": 4, "i2": 2, "u2": 2, "i1": 1, "u1": 1}

# ---------------------------------------------------------------------- words of specifications


def words(value: Any, most: int = 120) -> str:
    """A title or name from a specification on one line: a text, a number, or the `text` of a dictionary."""
    for _ in range(3):
        if type(value) is dict:
            value = value.get("text", value.get("expr"))
    if type(value) is list:
        value = " / ".join(part for part in value[:5] if type(part) is str)
    return clip(one_line(" ".join(str(value).split())), most) if type(value) in (str, int, float) else ""


def named(head: str, value: Any) -> str:
    """`head 'title'`, or "" without one."""
    said = words(value)
    return f"{head} {said!r}" if said else ""


def joined(head: str, parts: list[str]) -> str:
    """`head: one, two`, without what is empty."""
    told = ", ".join(part for part in parts if part)
    return f"{head}: {told}" if told else head


def tally(names: Iterable[str]) -> list[str]:
    """Each name once, `3 Line` where it comes more often."""
    return [f"{count} {name}" if count > 1 else name for name, count in Counter(names).items()]


def plotly_words(data: Any, layout: Any) -> str:
    """Of a plotly figure's traces and layout: kinds, names and sizes of traces, title and axes."""
    traces: list[Any] = data if type(data) in (list, tuple) else []
    layout = layout if type(layout) is dict else {}
    kinds: dict[str, list[str]] = {}
    for trace in [trace for trace in traces if type(trace) is dict][:MOST_PARTS]:
        size = _trace_size(trace)
        said = words(trace.get("name"), 40)
        kinds.setdefault(words(trace.get("type")) or "scatter", []).append(
            f"{repr(said) + ' ' if said else ''}{size}".strip()
        )
    told = [f"{kind} {', '.join(filter(None, each))}".strip() for kind, each in kinds.items()]
    more = f", {len(traces) - MOST_PARTS} more" if len(traces) > MOST_PARTS else ""
    count = f"{len(traces)} traces ({'; '.join(told)}{more})" if len(traces) > 1 else "".join(told) or "no traces"
    axes = [
        said
        for axis in [key for key in layout if type(key) is str and "axis" in key[:6]][:6]
        if type(layout[axis]) is dict and (said := named(axis.replace("axis", ""), layout[axis].get("title")))
    ]
    scene = layout.get("scene")
    if type(scene) is dict:
        axes += [named(axis[0], scene[axis].get("title")) for axis in ("xaxis", "yaxis", "zaxis")
                 if type(scene.get(axis)) is dict]  # fmt: skip
    legend = layout.get("legend")
    colour = named("legend", legend.get("title")) if type(legend) is dict else ""
    return ", ".join(filter(None, (count, named("title", layout.get("title")), *axes, colour)))


def _trace_size(trace: Mapping[str, Any]) -> str:
    for name in ("x", "y", "z", "values", "labels", "lat", "r", "locations", "value"):
        part: Any = trace.get(name)
        if type(part) in (list, tuple):
            nested = f" x {len(part[0])}" if name == "z" and part and type(part[0]) in (list, tuple) else ""
            return f"{len(part)}{nested}" if nested else counted(len(part), "point")
        if type(part) is dict and type(part.get("bdata")) is str:
            if told := words(part.get("shape")):
                return told.replace(", ", " x ")
            size = len(part["bdata"]) * 3 // 4 // _ITEM_BYTES.get(words(part.get("dtype")), 8)
            return counted(size, "point")
        if TypeInfo(type(part)).genuine("numpy", "pandas") and type(shape := getattr(part, "shape", None)) is tuple:
            return " x ".join(map(str, shape)) if len(shape) > 1 else counted(shape[0], "point")
        if name == "value" and type(part) in (int, float):
            return f"{part:.6g}"
    return ""


def bokeh_words(bundle: Mapping[str, Any]) -> str:
    """A bokeh document from the script that draws it."""
    script = str(bundle.get("application/javascript", ""))[:MOST_HTML]
    begin = script.find("docs_json = ")
    if begin < 0:
        return ""
    try:
        documents, _ = json.JSONDecoder().raw_decode(script, begin + len("docs_json = "))
    except (ValueError, RecursionError):
        return "of an unknown kind"
    found: dict[str, list[str]] = {"Title": [], "glyph": [], "axis": [], "legend": []}
    waiting, room = [documents], 20_000
    while waiting and room:
        room -= 1
        part = waiting.pop()
        if isinstance(part, list):
            waiting += reversed(part)
        elif isinstance(part, dict):
            name, given = str(part.get("name", "")), part.get("attributes")
            given = given if isinstance(given, dict) else {}
            if name == "Title" and words(given.get("text")):
                found["Title"].append(f"title {words(given['text'])!r}")
            elif name.endswith("Axis") and words(given.get("axis_label")):
                found["axis"].append(f"axis {words(given['axis_label'])!r}")
            elif name == "LegendItem" and isinstance(given.get("label"), dict):
                found["legend"].append(words(given["label"].get("value")))
            elif name == "GlyphRenderer" and isinstance(given.get("glyph"), dict):
                found["glyph"].append(words(given["glyph"].get("name")))
            waiting += reversed(list(part.values()))
    legend = f"legend {', '.join(found['legend'][:8])!r}" if found["legend"] else ""
    told = [", ".join(tally(found["glyph"])) or "no glyphs", *found["Title"][:4], *found["axis"][:4], legend]
    return ", ".join(filter(None, told))


_CHANNEL_WORDS = ("aggregate", "timeUnit", "bin")


def vega_words(spec: Any, depth: int = 0) -> str:
    """Of a Vega-Lite specification: marks, encodings, title, layers and panels. Data are not looked at."""
    if type(spec) is not dict:
        return ""
    mark = spec.get("mark")
    told = [words(mark.get("type")) if type(mark) is dict else words(mark)]
    encoding = spec.get("encoding")
    for channel, given in list(encoding.items())[:MOST_PARTS] if type(encoding) is dict else ():
        for one in given[:4] if type(given) is list else [given]:
            if said := _channel(one):
                told.append(f"{words(channel, 20)} {said}")
    told.append(named("title", spec.get("title")))
    for transform in spec["transform"][:4] if type(spec.get("transform")) is list else ():
        if type(transform) is dict:
            told.append("transform " + " ".join(words(key, 30) for key in list(transform)[:3]))
    for key, word in (("layer", "layer"), ("hconcat", "panel"), ("vconcat", "panel"), ("concat", "panel")):
        parts = spec.get(key)
        if type(parts) is list and depth < 4:
            inner = "; ".join(vega_words(part, depth + 1) for part in parts[:6])
            told.append(f"{counted(len(parts), word)} ({inner}{'; …' if len(parts) > 6 else ''})")
    for key in ("facet", "repeat"):
        if key in spec:
            given = spec[key]
            by = _channel(given) or ", ".join(_channel(part) for part in given.values()) if type(given) is dict else ""
            told.append(f"{key} {by}".strip())
    if type(spec.get("spec")) is dict and depth < 4:
        told.append(vega_words(spec["spec"], depth + 1))
    return ", ".join(filter(None, told))


def _channel(given: Any) -> str:
    if type(given) is not dict:
        return words(given)
    field = words(given.get("shorthand")) or words(given.get("field"))
    if type(given.get("field")) is dict:
        field = words(given["field"].get("repeat"))
    done = [key if given[key] is True else words(given[key]) or key for key in _CHANNEL_WORDS if given.get(key)]
    said = f"{'_'.join(done)}({field})" if done else field or words(given.get("value"))
    title = words(given.get("title"))
    if not title and type(given.get("axis")) is dict:
        title = words(given["axis"].get("title"))
    return f"{said} {title!r}" if title and title != said else said


# ---------------------------------------------------------------------- plotly, altair, bokeh


def _plotly(value: Any, look: PreviewContext, width: int) -> str:
    return f"plotly {look.kind(value).name}: {plotly_words(stored(value, '_data'), stored(value, '_layout'))}"


def _spec(value: Any, look: PreviewContext, depth: int = 0) -> Any:
    """What altair stores as plain dictionaries; its own classes keep their arguments in `_kwds`."""
    if type(value) in (str, int, float, bool):
        return value
    if type(value) in (list, tuple) and depth < 8:
        return [_spec(part, look, depth + 1) for part in value[:MOST_PARTS]]
    given = value if type(value) is dict else stored(value, "_kwds")
    if type(given) is not dict or depth >= 8:
        return None
    kept = {
        key: made
        for key, part in list(given.items())[:60]
        if type(key) is str and key not in ("data", "datasets", "config")
        and (made := _spec(part, look, depth + 1)) is not None
    }  # fmt: skip
    return kept or None


def _altair(value: Any, look: PreviewContext, width: int) -> str:
    data = stored(value, "_kwds")
    data = data.get("data", MISSING) if type(data) is dict else MISSING
    over = f", data {look.short(data)}" if data is not MISSING and look.family(data).group is Group.FRAMES else ""
    return f"altair {look.kind(value).name}: {vega_words(_spec(value, look))}{over}"


def _bokeh_values(value: Any) -> dict[str, Any]:
    found = stored(value, "_property_values")
    return found if type(found) is dict else {}


def _bokeh(value: Any, look: PreviewContext, width: int) -> str:
    own = _bokeh_values(value)
    glyphs = [_bokeh_values(renderer).get("glyph") for renderer in listed(own.get("renderers"))]
    told = tally(look.kind(glyph).name for glyph in glyphs if glyph is not None)
    told.append(named("title", _bokeh_values(own.get("title")).get("text")))
    for place, axis in (("below", "x"), ("left", "y")):
        for part in listed(own.get(place), 1):
            told.append(named(axis, _bokeh_values(part).get("axis_label")))
    for part in listed(own.get("center")):
        items = listed(_bokeh_values(part).get("items"))
        labels = [_bokeh_values(_bokeh_values(item).get("label", item)).get("value") for item in items]
        labels = [item if type(item) is str else stored(item, "value") for item in labels]
        told += [named("legend", ", ".join(label for label in labels if type(label) is str))]
    children = listed(own.get("children"))
    if children:
        inner = [part[0] if type(part) is tuple and part else part for part in children[:6]]
        told.append(f"{counted(len(children), 'part')} ({'; '.join(look.line(part, 100) for part in inner)})")
    return joined(f"bokeh {look.kind(value).name}", told)


# ---------------------------------------------------------------------- matplotlib


def _plot(value: Any, look: PreviewContext, width: int) -> str:
    kind = look.kind(value)
    if kind.is_library("matplotlib.figure", "FigureBase"):
        axes = value.axes
        size = instance_dict(value).get("bbox_inches")
        inches = "" if size is None else f" {size.width:.3g} x {size.height:.3g} in"
        above = stored(value, "_suptitle")
        said = named("title", above.get_text()) if look.kind(above).genuine("matplotlib") else ""
        title = f", {said}" if said else ""
        told = "; ".join(_axes_words(each, look) for each in axes[:4]) + ("; …" if len(axes) > 4 else "")
        return f"matplotlib {kind.name}{inches}{title}, {counted(len(axes), 'subplot')}" + (f": {told}" if axes else "")
    if kind.is_library("matplotlib.axes", "Axes"):
        return f"matplotlib {kind.name}, {_axes_words(value, look)}"
    text, label = stored(value, "_text"), stored(value, "_label")
    said = text if type(text) is str else label if type(label) is str and label[:1] != "_" else ""
    return f"matplotlib {kind.name}{named('', said)}"


def _axes_words(axes: Any, look: PreviewContext) -> str:
    if not look.kind(axes).genuine("matplotlib"):
        return look.kind(axes).name
    drawn = {word: len(getattr(axes, word)) for word in ("lines", "collections", "patches", "images")}
    scatters = [part for part in axes.collections[:MOST_PARTS]
                if look.kind(part).is_library("matplotlib.collections", "PathCollection")]  # fmt: skip
    offsets = [stored(part, "_offsets") for part in scatters]
    points = sum(len(part) for part in offsets if look.kind(part).genuine("numpy"))
    marks = [
        (f"1 {'patch' if word == 'patches' else word[:-1]}" if count == 1 else f"{count} {word}")
        + (f" ({counted(points, 'point')})" if word == "collections" and points else "")
        for word, count in drawn.items()
        if count
    ]
    heads = [("title", axes.get_title(place)) for place in ("center", "left", "right")]
    titles = [
        f"{word} {look.line(text, 60)}"
        for word, text in (*heads, ("x", axes.get_xlabel()), ("y", axes.get_ylabel()))
        if text
    ]
    labels = [stored(each, "_label") for each in axes.lines[:8]]
    labels = [f"{label!r}" for label in (words(each, 30) for each in labels if type(each) is str and each[:1] != "_")]
    return ", ".join([*titles, *marks, *([f"labels {', '.join(filter(None, labels))}"] if labels else [])]) or "empty"


def _grid(value: Any, look: PreviewContext, width: int) -> str:
    """seaborn's grids of axes."""
    figure = stored(value, "_figure")
    told = look.line(figure, width - 30) if figure is not MISSING else ""
    facets = [f"{word} {look.line(stored(value, place), 40)}" for word, place in
              (("columns by", "_col_var"), ("rows by", "_row_var"), ("hue", "_hue_var"))
              if type(stored(value, place)) is str]  # fmt: skip
    return joined(f"seaborn {look.kind(value).name}", [*facets, told])


def _grammar(value: Any, look: PreviewContext, width: int) -> str:
    """plotnine's plots: mapping and layers."""
    labels = stored(value, "labels")
    told = [f"{key} {words(part)}" for key, part in pairs(stored(value, "mapping")).items() if words(part)]
    told += [look.kind(stored(layer, "geom")).name for layer in listed(stored(value, "layers"))]
    told.append(named("title", stored(labels, "title") if labels is not MISSING else None))
    facet = stored(value, "facet")
    told.append(look.kind(facet).name if look.kind(facet).name.startswith(("facet_w", "facet_g")) else "")
    return joined("plotnine ggplot", told)


def _elements(value: Any, look: PreviewContext, width: int) -> str:
    """holoviews' elements: dimensions and data."""

    def parameters(part: Any) -> dict[str, Any]:
        kept = stored(stored(part, "_param__private"), "values")
        return kept if type(kept) is dict else {}

    own = parameters(value)
    dimensions = [parameters(part) for key in ("kdims", "vdims") for part in listed(own.get(key))]
    names = [words(part.get("name")) for part in dimensions if part]
    data = stored(value, "data")
    over = f"data {look.short(data)}" if data is not MISSING else ""
    return joined(f"holoviews {look.kind(value).name}", [*names[:8], over])


# ---------------------------------------------------------------------- tables for print, maps, pictures


def _table_for_print(value: Any, look: PreviewContext, width: int) -> str:
    heading, notes = stored(value, "_heading"), stored(value, "_source_notes")
    told = [f"over {look.short(stored(value, '_tbl_data'))}"]
    if heading is not MISSING:
        told += [named("title", stored(heading, "title")), named("subtitle", stored(heading, "subtitle"))]
    told += [named("source note", note) for note in (notes[:3] if type(notes) is list else ())]
    return joined("great_tables GT", told)


def _is_map(kind: TypeInfo) -> bool:
    return kind.top in ("folium", "branca") and kind.is_library("branca.element", "Element")


def _map(value: Any, look: PreviewContext, width: int) -> str:
    own = instance_dict(value)
    told = []
    place = own.get("location")
    if type(place) in (list, tuple):
        told.append(f"at {look.line(place, 60)}")
    options, children = own.get("options"), own.get("_children")
    zoom = options.get("zoom") if type(options) is dict else None
    told.append(f"zoom {zoom}" if type(zoom) is int else "")
    if isinstance(children, dict):
        told += tally(look.kind(part).name for part in list(dict.values(children))[:20])
    return joined(f"folium {look.kind(value).name}", told)


def _picture(value: Any, look: PreviewContext, width: int) -> str:
    size, mode = stored(value, "_size"), stored(value, "_mode")
    kind = look.kind(value)
    pixels = f"{size[0]} x {size[1]}" if type(size) is tuple and len(size) == 2 else "of unknown size"
    made_by, file = stored(value, "format"), stored(value, "filename")
    if made_by is MISSING:
        made_by = next((found for base in kind.mro if (found := class_dict(base).get("format")) is not None), None)
    told = [f"mode {mode}" if type(mode) is str else "", words(made_by), named("file", file)]
    return f"PIL {kind.name} {pixels}, {', '.join(filter(None, told))}"


def _displayed(value: Any, look: PreviewContext, width: int) -> str:
    """IPython's HTML, Markdown, Image and the like."""
    data, own = stored(value, "data"), look.kind(value).name
    data = stored(value, "_data") if data is MISSING else data
    size = f", {len(data):,} {'bytes' if type(data) is bytes else 'characters'}" if type(data) in (str, bytes) else ""
    source = named("from", stored(value, "url")) or named("from", stored(value, "filename"))
    if type(data) is str:
        said = " ".join(markdown_of(data[:4_000]).split()) if own == "HTML" else data
        return f"IPython {own}{size}{f': {look.line(said, max(20, min(160, width - 40)))}' if said else ''}"
    if type(data) is bytes and data[:8] == b"\x89PNG\r\n\x1a\n":
        size += f", {int.from_bytes(data[16:20])} x {int.from_bytes(data[20:24])}"
    return f"IPython {own}{size}{' ' + source if source else ''}"


# ---------------------------------------------------------------------- widgets

_TRAITS = ("min", "max", "options", "_options_labels", "center", "zoom", "location", "selected_index", "titles")


def _widget(value: Any, look: PreviewContext, width: int) -> str:
    kind = look.kind(value)
    traits = stored(value, "_trait_values")
    traits = traits if type(traits) is dict else {}
    head = f"{kind.top} {kind.name}"
    said = words(traits.get("description"), 60) or words(traits.get("title"), 60)
    head += f" {said!r}" if said else ""
    if "value" in traits:
        held = "[…masked]" if kind.name == "Password" else look.line(traits["value"], 80, said)
        head += f" = {held}"
    told = []
    for name in _TRAITS:
        part = traits.get(name)
        if ("options" in name and "value" not in traits) or (name == "_options_labels" and traits.get("options")):
            continue  # names of the widget's own; the same once more
        if part is not None and part != () and type(part) in (int, float, str, tuple, list):
            told.append(f"{name.removeprefix('_options_') if name[0] == '_' else name} {look.line(part, 60)}")
    children = traits.get("children")
    if type(children) in (tuple, list) and children:
        inner = (look.line(child, 60) for child in children[:MOST_PARTS])
        told.append(f"[{look.items(inner, max(20, width - len(head) - 40), len(children))}]")
    outputs = traits.get("outputs")
    if type(outputs) is tuple:
        told.append(counted(len(outputs), "output"))
    return f"{head} ({', '.join(told)})" if told else head


def _layers(value: Any, look: PreviewContext, width: int) -> str:
    """pydeck's decks and layers."""
    own = instance_dict(value)
    layers = own.get("layers")
    kinds = [words(instance_dict(layer).get("@@type")) or look.kind(layer).name for layer in listed(layers)]
    view = instance_dict(own.get("initial_view_state"))
    place = [f"{key} {view[key]}" for key in ("latitude", "longitude", "zoom") if type(view.get(key)) in (int, float)]
    return joined(f"pydeck {look.kind(value).name}", [words(own.get("@@type")), *kinds, *place])


FAMILIES = (
    of_library("plots", facts(_plot), "matplotlib.artist", "Artist", genuine="matplotlib", order=35),
    of_library("plotly figures", facts(_plotly), "plotly.basedatatypes", "BaseFigure"),
    of_library("altair charts", facts(_altair), "altair", "TopLevelMixin"),
    of_library("bokeh models", facts(_bokeh), "bokeh.model", "Model"),
    of_library("seaborn grids", facts(_grid), "seaborn.axisgrid", "Grid"),
    of_library("plotnine plots", facts(_grammar), "plotnine", "ggplot"),
    of_library("holoviews elements", facts(_elements), "holoviews", "Element"),
    of_library("tables for print", facts(_table_for_print), "great_tables", "GT"),
    PreviewHandler("maps", Group.OBJECTS, _is_map, library_name, facts(_map), None, 34),
    of_library("decks", facts(_layers), "pydeck", "Deck", "Layer"),
    of_library("pictures", facts(_picture), "PIL.Image", "Image"),
    of_library("displayed objects", facts(_displayed), "IPython.core.display", "DisplayObject", genuine="IPython"),
    of_library("widgets", facts(_widget), "ipywidgets.widgets.widget", "Widget"),
)
