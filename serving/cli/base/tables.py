"""Lay out a table for a terminal: drop empty columns, shorten or wrap long cells, colour states. Pure."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

import click

GAP, NARROW_GAP = 3, 2
"""Spaces between two columns: as kubectl has them, and in a table that otherwise does not fit."""
COMFORT: Final = 16
"""Width below which a cell is hard to read: optional columns are dropped before other columns become narrower."""
MIN_WIDTH: Final = 8
ELLIPSIS: Final = "…"
WHOLE: Final = frozenset({"name", "namespace", "model", "pool", "revision", "age", "check", "field", "url"})
"""Heads of columns that are never shortened: users copy their cells into other commands."""
STATES: Final = frozenset({"ready", "state", "status", "phase", "outcome", "rollout"})
"""Heads of columns whose cells are coloured."""
COLOURS: Final[Mapping[str, str]] = MappingProxyType(
    dict.fromkeys(("True", "ok", "Active", "Applied", "Promoted", "Running", "Sent", "Succeeded"), "green")
    | dict.fromkeys(("False", "PROBLEM", "Failed", "RolledBack", "Rejected", "Refused"), "red")
    | dict.fromkeys(("Unknown", "skipped", "Pending", "Progressing", "Paused", "Accepted", "Waiting"), "yellow")
)

Table = list[list[str]]


def lay_out(
    cells: Table, columns: int | None, *, optional: Sequence[str] = (), wrapped: str = "", coloured: bool = False
) -> str:
    """Return the text of a table whose first row holds the heads, in upper case.

    `columns` is the width of the terminal; None for no limit. If the table does not fit, the `optional` columns are
    dropped in their order, then the longest cells are shortened. The cells of the column `wrapped`, which must be the
    last one, are wrapped instead.
    """
    if columns is None:
        return _text(cells, _natural(cells), GAP, coloured)
    cells = _without_empty(cells)
    widths, gap = _natural(cells), GAP
    if _total(widths, gap) > columns:
        gap = NARROW_GAP
        for head in (*optional, None):
            widths = _shrunk(cells, columns, gap, wrapped)
            if head is None or all(
                width >= min(natural, COMFORT) for width, natural in zip(widths, _natural(cells), strict=True)
            ):
                break
            kept = [column for column, name in enumerate(cells[0]) if name.strip().lower() != head]
            cells = [[row[column] for column in kept] for row in cells]
    cells = list(_cut(cells, widths, wrapped))
    return _text(cells, widths, gap, coloured)


def shorten(text: str, width: int) -> str:
    """Return the text shortened to at most `width` columns of a terminal.

    Text with spaces is cut at its end, at a word boundary if one is near. An address or a name is cut in the middle.

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
    """Return the longest prefix of the text that needs at most `width` columns."""
    used = 0
    for index, char in enumerate(text):
        used += _char_width(char)
        if used > width:
            return text[:index]
    return text


def _natural(cells: Table) -> list[int]:
    return [max(display_width(row[column]) for row in cells) for column in range(len(cells[0]))]


def _total(widths: Sequence[int], gap: int) -> int:
    return sum(widths) + gap * (len(widths) - 1)


def _without_empty(cells: Table) -> Table:
    heads, *rows = cells
    if not rows:
        return cells
    kept = [column for column in range(len(heads)) if any(row[column].strip() for row in rows)]
    return [[row[column] for column in kept] for row in cells] if kept else cells


def _shrunk(cells: Table, columns: int, gap: int, wrapped: str) -> list[int]:
    """Return widths that fit, as far as columns may be shortened; the widest columns are narrowed evenly."""
    widths = _natural(cells)
    heads = [head.strip().lower() for head in cells[0]]
    soft = [column for column, head in enumerate(heads) if head not in WHOLE]
    if wrapped in heads:  # it gets the width that the others leave
        last = heads.index(wrapped)
        others = _total(widths, gap) - widths[last]
        widths[last] = min(widths[last], max(COMFORT, columns - others))
        soft = [column for column in soft if column != last]
    least = {column: max(MIN_WIDTH, display_width(cells[0][column])) for column in soft}
    while _total(widths, gap) > columns:
        widest = max((column for column in soft if widths[column] > least[column]), key=widths.__getitem__, default=-1)
        if widest < 0:
            break
        widths[widest] -= 1
    return widths


def _cut(cells: Table, widths: Sequence[int], wrapped: str) -> Iterable[list[str]]:
    import textwrap

    wraps = cells[0][-1].strip().lower() == wrapped
    for row in cells:
        short = [shorten(cell, width) for cell, width in zip(row, widths, strict=True)]
        if not wraps:
            yield short
            continue
        lines = textwrap.wrap(row[-1], widths[-1], break_long_words=False, break_on_hyphens=False)
        first, *more = lines or [""]
        yield [*short[:-1], first]
        for line in more:
            yield [*[""] * (len(row) - 1), line]


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
