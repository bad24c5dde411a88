"""Lay out a table for a terminal: drop empty columns, shorten or wrap long cells, colour states. Pure."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

import click

GAP, NARROW_GAP = 3, 2
"""Spaces between two columns: kubectl's, and those of a table that would not fit."""
COMFORT: Final = 16
"""A cell shorter than this tells little: an optional column is dropped before another one becomes narrower."""
LEAST: Final = 8
ELLIPSIS: Final = "…"
WHOLE: Final = frozenset({"name", "namespace", "model", "pool", "revision", "age", "check", "field", "url"})
"""Heads of columns that are never shortened: their cells are copied into other commands."""
STATES: Final = frozenset({"ready", "state", "status", "phase", "outcome", "rollout"})
"""Heads of columns whose cells are coloured."""
COLOURS: Final[Mapping[str, str]] = MappingProxyType(
    dict.fromkeys(("True", "ok", "Active", "Applied", "Promoted", "Running", "Sent", "Succeeded"), "green")
    | dict.fromkeys(("False", "PROBLEM", "Failed", "RolledBack", "Rejected", "Refused"), "red")
    | dict.fromkeys(("Unknown", "not seen", "Pending", "Progressing", "Paused", "Accepted", "Waiting"), "yellow")
)

Table = list[list[str]]


def lay_out(
    cells: Table, columns: int | None, *, optional: Sequence[str] = (), wrapped: str = "", coloured: bool = False
) -> str:
    """Return the text of a table whose first row holds the heads, in upper case.

    `columns` is the width of the terminal; None keeps every column and every cell whole. A table that does not fit
    loses the `optional` columns in their order, then its longest cells are shortened. The cells of the column
    `wrapped`, which must be the last one, go on below instead.
    """
    if columns is None:
        return _text(cells, [_width_of(cells, column) for column in range(len(cells[0]))], GAP, coloured)
    cells = _without_empty(cells)
    widths, gap = _natural(cells), GAP
    if _total(widths, gap) > columns:
        gap = NARROW_GAP
        for head in (*optional, None):
            widths = _shrunk(cells, columns, gap, wrapped)
            if head is None or _is_comfortable(cells, widths):
                break
            cells = _without(cells, head)
    cells = list(_cut(cells, widths, wrapped))
    return _text(cells, widths, gap, coloured)


def shorten(text: str, width: int) -> str:
    """Return the text in at most `width` columns of a terminal.

    A sentence loses its end, at a word where one ends near; an address or a name loses its middle.

    Example:
        >>> shorten("https://models.example.com/iris.onnx", 20)
        'https://m…/iris.onnx'
    """
    if display_width(text) <= width:
        return text
    if " " in text:
        kept = _head(text, width - 1)
        at_word, _, rest = kept.rpartition(" ")
        return (at_word if at_word and len(rest) < width // 3 else kept).rstrip(" ,;:") + ELLIPSIS
    tail = text[::-1]
    return _head(text, (width - 1) // 2) + ELLIPSIS + _head(tail, width - 1 - (width - 1) // 2)[::-1]


def display_width(text: str) -> int:
    """Return the number of columns that a terminal needs for the text."""
    return len(text) if text.isascii() else sum(map(_char_width, text))


def _char_width(char: str) -> int:
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def _head(text: str, width: int) -> str:
    """The longest beginning of the text that needs at most `width` columns."""
    used = 0
    for index, char in enumerate(text):
        used += _char_width(char)
        if used > width:
            return text[:index]
    return text


def _natural(cells: Table) -> list[int]:
    return [_width_of(cells, column) for column in range(len(cells[0]))]


def _width_of(cells: Table, column: int) -> int:
    return max(display_width(row[column]) for row in cells)


def _total(widths: Sequence[int], gap: int) -> int:
    return sum(widths) + gap * (len(widths) - 1)


def _without_empty(cells: Table) -> Table:
    heads, *rows = cells
    if not rows:
        return cells
    kept = [column for column in range(len(heads)) if any(row[column].strip() for row in rows)]
    return [[row[column] for column in kept] for row in cells] if kept else cells


def _without(cells: Table, head: str) -> Table:
    kept = [column for column, name in enumerate(cells[0]) if name.strip().lower() != head]
    return [[row[column] for column in kept] for row in cells]


def _shrunk(cells: Table, columns: int, gap: int, wrapped: str) -> list[int]:
    """Widths that fit, as far as columns can be shortened: the widest ones are shortened to one width."""
    widths = _natural(cells)
    heads = [head.strip().lower() for head in cells[0]]
    soft = [column for column, head in enumerate(heads) if head not in WHOLE]
    if wrapped in heads:  # it takes what the others leave
        last = heads.index(wrapped)
        others = _total(widths, gap) - widths[last]
        widths[last] = min(widths[last], max(COMFORT, columns - others))
        soft = [column for column in soft if column != last]
    least = {column: max(LEAST, display_width(cells[0][column])) for column in soft}
    while _total(widths, gap) > columns:
        widest = max((column for column in soft if widths[column] > least[column]), key=widths.__getitem__, default=-1)
        if widest < 0:
            break
        widths[widest] -= 1
    return widths


def _is_comfortable(cells: Table, widths: Sequence[int]) -> bool:
    return all(now >= min(natural, COMFORT) for now, natural in zip(widths, _natural(cells), strict=True))


def _cut(cells: Table, widths: Sequence[int], wrapped: str) -> Iterable[list[str]]:
    wraps = cells[0][-1].strip().lower() == wrapped
    for row in cells:
        short = [shorten(cell, width) for cell, width in zip(row, widths, strict=True)]
        if not wraps:
            yield short
            continue
        first, *more = _lines(row[-1], widths[-1])
        yield [*short[:-1], first]
        for line in more:
            yield [*[""] * (len(row) - 1), line]


def _lines(text: str, width: int) -> list[str]:
    import textwrap

    return textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False) or [""]


def _text(cells: Table, widths: Sequence[int], gap: int, coloured: bool) -> str:
    heads = [head.strip().lower() for head in cells[0]]
    lines = []
    for number, row in enumerate(cells):
        padded = [cell + " " * (width - display_width(cell)) for cell, width in zip(row, widths, strict=True)]
        line = (" " * gap).join(padded).rstrip()
        if coloured:
            shown = [_coloured(head, cell, number == 0) for head, cell in zip(heads, padded, strict=True)]
            line = (" " * gap).join([*shown[:-1], _coloured(heads[-1], row[-1], number == 0)])
        lines.append(line + "\n")
    return "".join(lines)


def _coloured(head: str, cell: str, is_head: bool) -> str:
    if is_head:
        return click.style(cell, bold=True)
    colour = COLOURS.get(cell.strip()) if head in STATES else None
    return click.style(cell, fg=colour) if colour else cell
