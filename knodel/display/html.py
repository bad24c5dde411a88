"""Pieces of HTML for notebooks. Pure.

They need no style sheet, script or file, and take text colour and background from the page, so that they fit light and
dark notebooks. Every text is escaped: only `Html` is taken as it is. What a picture shows is also there as text.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Final, NamedTuple

PALETTE: Final = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#8C8C8C")
"""Colours of parts, in order (Okabe and Ito): told apart by colour-blind readers, and visible on white and on black."""
GOOD, BAD, WAITING = "#009E73", "#D55E00", "#8C8C8C"
_LINE: Final = "1px solid rgba(128,128,128,.35)"
_CELL: Final = f"text-align:left;padding:.15em 1.2em .15em 0;border:0;border-bottom:{_LINE};vertical-align:top;"
_PLAIN: Final = "background:transparent;color:inherit;"
_MUTED: Final = "opacity:.7;"
_TRACK: Final = (
    "height:.7em;max-width:100%;margin:.3em 0;border-radius:.2em;overflow:hidden;background:rgba(128,128,128,.2);"
)
_SHORT: Final = 24  # characters of a cell whose text stays on one line
_MIN_SHARE: Final = 0.004  # of a bar's width; a part with less would not be seen


class Html(str):
    """HTML, as opposed to text that must be escaped."""

    __slots__ = ()


class Part(NamedTuple):
    """A part of a bar: its label, its size in any unit, and the text of its size."""

    label: str
    size: float
    text: str


def element(tag: str, *children: object, style: str = "", **attributes: str) -> Html:
    """Return an element. Children that are not `Html` are escaped, as are attributes; `_` in a name becomes `-`."""
    given = {**({"style": style} if style else {}), **attributes}
    shown = "".join(f' {name.replace("_", "-")}="{html.escape(value)}"' for name, value in given.items())
    return Html(f"<{tag}{shown}>{joined(*children)}</{tag}>")


def joined(*children: object) -> Html:
    """Return the children one after another."""
    return Html("".join(one if isinstance(one, Html) else html.escape(str(one)) for one in children))


def page(title: str, *children: object) -> Html:
    """Return a result with its title."""
    head = element("div", title, style="font-weight:600;margin-bottom:.3em;")
    return element("div", head, *children, style=f"{_PLAIN}line-height:1.5;max-width:76em;", **{"class": "knodel"})


def section(title: str, *children: object) -> Html:
    """Return children below a small heading; nothing without children that have content."""
    content = joined(*children)
    return (
        element("div", element("div", title, style=_MUTED), content, style="margin-top:.6em;") if content else content
    )


def muted(*children: object) -> Html:
    """Return text of less weight."""
    return element("span", *children, style=_MUTED)


def status(text: str, colour: str) -> Html:
    """Return a word with a coloured dot before it."""
    dot = element("span", "●", style=f"color:{colour};", aria_hidden="true")
    return element("span", dot, " ", text, style="white-space:nowrap;")


def table(heads: Sequence[str], rows: Sequence[Sequence[object]], empty: str = "none") -> Html:
    """Return a table. A column that is empty in each row is left out."""
    if not rows:
        return muted(empty)
    kept = [index for index in range(len(heads)) if any(str(row[index]) for row in rows)]
    top = [element("th", heads[index], style=f"{_CELL}{_MUTED}font-weight:normal;", scope="col") for index in kept]
    body = [
        element("tr", *(_cell(row[index]) for index in kept), style=_PLAIN) for row in rows
    ]  # fmt: skip
    return element(
        "table", element("thead", element("tr", *top, style=_PLAIN)), element("tbody", *body),
        style=f"{_PLAIN}border-collapse:collapse;margin:0;font-size:inherit;",
    )  # fmt: skip


def facts(pairs: Sequence[tuple[str, object]]) -> Html:
    """Return a table of names and values, without those that are empty."""
    rows = [
        element(
            "tr",
            element("th", name, style=f"{_CELL}{_MUTED}font-weight:normal;white-space:nowrap;", scope="row"),
            element("td", value, style=_CELL),
            style=_PLAIN,
        )
        for name, value in pairs
        if str(value)
    ]
    return element(
        "table", element("tbody", *rows), style=f"{_PLAIN}border-collapse:collapse;margin:0;font-size:inherit;"
    )


def bar(title: str, parts: Sequence[Part], *, width: float = 1.0, legend: bool = True) -> Html:
    """Return a bar of parts, `width` (0 to 1) of the full length, with its legend below."""
    total = sum(part.size for part in parts)
    spoken = f"{title}: " + ", ".join(f"{part.label} {part.text}" for part in parts)
    pieces = [
        element("span", style=f"flex:{max(part.size / total, _MIN_SHARE):.4f} 0 0;background:{colour(index)};",
                title=f"{part.label}: {part.text}")
        for index, part in enumerate(parts) if total and part.size > 0
    ]  # fmt: skip
    drawn = element(
        "div", *pieces, role="img", aria_label=spoken,
        style=f"{_TRACK}display:flex;gap:1px;width:{24 * max(width, 0.01):.2f}em;",
    )  # fmt: skip
    return joined(drawn, _legend(parts)) if legend else drawn


def progress_bar(percent: int) -> Html:
    """Return the bar of something that is done to `percent`."""
    done = element("div", style=f"width:{percent}%;height:100%;background:{GOOD};")
    return element(
        "div", done, role="progressbar", aria_valuenow=str(percent), aria_valuemin="0", aria_valuemax="100",
        style=f"{_TRACK}width:24em;",
    )  # fmt: skip


def sparkline(title: str, values: Sequence[float], colour: str = "currentColor") -> Html:
    """Return a line of small columns, such as a distribution or a series over time, as an SVG."""
    top = max(values, default=0) or 1
    columns = [
        element(
            "rect", x=str(index), y=f"{1 - max(value, 0) / top:.3f}", width="0.85", height=f"{max(value, 0) / top:.3f}"
        )
        for index, value in enumerate(values)
    ]
    return element(
        "svg", element("title", title), *columns, role="img", aria_label=title, fill=colour,
        viewBox=f"0 0 {max(len(values), 1)} 1", preserveAspectRatio="none",
        style=f"width:{min(max(len(values) * 0.6, 3), 24):.1f}em;height:1.4em;vertical-align:middle;overflow:visible;",
    )  # fmt: skip


def lines(texts: Sequence[str]) -> Html:
    """Return lines of text."""
    return element("div", *(element("div", text) for text in texts), style="font-size:.95em;")


def colour(index: int) -> str:
    """Return the colour of the part with this index."""
    return PALETTE[min(index, len(PALETTE) - 1)]


def _cell(content: object) -> Html:
    wraps = not isinstance(content, Html) and len(str(content)) > _SHORT
    return element("td", content, style=_CELL if wraps else f"{_CELL}white-space:nowrap;")


def _legend(parts: Sequence[Part]) -> Html:
    entries = [
        element(
            "span",
            element("span", "■", style=f"color:{colour(index)};", aria_hidden="true"), " ", part.label, " ",
            muted(part.text),
            style="margin-right:1.2em;white-space:nowrap;",
        )
        for index, part in enumerate(parts)
    ]  # fmt: skip
    return element("div", *entries, style="font-size:.9em;")
