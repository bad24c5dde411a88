"""Lay out tables and text for a terminal: drop empty columns, shorten or wrap long cells, colour states. Pure.

What users copy is never shortened or broken: names, ids, versions, times, addresses and commands. A table that does not
fit because of them is printed as records, one cell a line, as psql prints wide tables with `\\x auto`.
"""

from __future__ import annotations

import operator
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final

import click

GAP, NARROW_GAP = 3, 2
"""Spaces between two columns: as kubectl has them, and in a table that otherwise does not fit."""
COMFORT: Final = 16
"""Width below which a cell is hard to read: optional columns are dropped before other columns become narrower."""
MIN_WIDTH: Final = 8
ELLIPSIS: Final = "…"
SHORTENED: Final = frozenset(
    {"reason", "traffic", "storage", "type", "message", "note", "models", "by", "default", "compared"}
)
"""Heads of columns whose cells may be shortened; users copy the cells of other columns into other commands."""
STATES: Final = frozenset({"ready", "state", "status", "phase", "outcome", "rollout"})
"""Heads of columns whose cells are coloured."""
COLOURS: Final[Mapping[str, str]] = MappingProxyType(
    dict.fromkeys(("True", "ok", "Active", "Applied", "Promoted", "Running", "Sent", "Succeeded", "promoted"), "green")
    | dict.fromkeys(("False", "PROBLEM", "Failed", "RolledBack", "Rejected", "Refused", "failed", "rolled back"), "red")
    | dict.fromkeys(
        ("Unknown", "skipped", "Pending", "Progressing", "Paused", "Accepted", "Waiting", "starting"), "yellow"
    )
)
_TOKEN: Final = re.compile(r"(\s*)(\bcurl\s.*|(?:`[^`]*`|\S)+)")
"""A word with the spaces before it. A command, in backquotes or with curl, is one word."""
_LABEL: Final = re.compile(r"\s*(?:\S[^:]{0,24}:\s\s+)?")
"""The indentation of a line, with its label if the text after it is aligned."""

Table = list[list[str]]


def lay_out(
    cells: Table,
    columns: int | None,
    *,
    optional: Sequence[str] = (),
    wrapped: str = "",
    coloured: bool = False,
    ellipsis: str = ELLIPSIS,
) -> str:
    """Return the text of a table whose first row holds the heads, in upper case.

    `columns` is the width of the terminal; None for no limit. If the table does not fit, the `optional` columns are
    dropped in their order, then the longest cells of SHORTENED columns are shortened. The cells of the column
    `wrapped`, which must be the last one, are wrapped instead. If that does not suffice, each row is a record.
    """
    if columns is None:
        return _text(cells, _natural(cells), GAP, coloured)
    whole = cells = _without_empty(cells)
    widths, gap = _natural(cells), GAP
    if _total(widths, gap) > columns:
        gap = NARROW_GAP
        for head in (*optional, None):
            widths = _shrunk(cells, columns, gap, wrapped)
            comfortable = (min(natural, COMFORT) for natural in _natural(cells))
            if head is None or (_total(widths, gap) <= columns and all(map(operator.ge, widths, comfortable))):
                break
            kept = [column for column, name in enumerate(cells[0]) if name.strip().lower() != head]
            cells = [[row[column] for column in kept] for row in cells]
        if _total(widths, gap) > columns and len(cells) > 1:
            return _records(whole, columns, coloured)
        while _total(widths, gap) > columns and len(widths) > 1:  # heads without rows
            cells, widths = [cells[0][:-1]], widths[:-1]
    cells = list(_cut(cells, widths, wrapped, ellipsis))
    return _text(cells, widths, gap, coloured)


def shorten(text: str, width: int, ellipsis: str = ELLIPSIS) -> str:
    """Return the text shortened to at most `width` columns of a terminal.

    Text with spaces is cut at its end, at a word boundary if one is near. An address or a name is cut in the middle.

    Example:
        >>> shorten("https://models.example.com/iris.onnx", 20)
        'https://m…/iris.onnx'
    """
    if display_width(text) <= width:
        return text
    room = width - len(ellipsis)
    if room <= 0:
        return head_of(text, width)
    if " " in text:
        kept = head_of(text, room)
        at_word, _, rest = kept.rpartition(" ")
        return (at_word if at_word and len(rest) < width // 3 else kept).rstrip(" ,;:") + ellipsis
    tail = text[::-1]
    return head_of(text, room // 2) + ellipsis + head_of(tail, room - room // 2)[::-1]


def wrap(text: str, width: int) -> list[str]:
    """Return the lines of a text that is wrapped between words to at most `width` columns.

    An address or a command that is longer has a line of its own.
    """
    lines, line = [], ""
    for space, word in _words(text, width):
        joined = f"{line}{space}{word}" if line else word
        if line and display_width(joined) > width:
            lines.append(line)
            joined = word
        line = joined
    return [*lines, line]


def wrap_line(line: str, columns: int) -> list[str]:
    """Return the lines of a text line that is wrapped to a terminal.

    Further lines are indented by two more spaces, or below the text of an aligned label.

    Example:
        >>> wrap_line("Storage:   a file that is not there", 24)
        ['Storage:   a file that', '           is not there']
    """
    if display_width(line) <= columns:
        return [line]
    found = _LABEL.match(line)
    label = found[0] if found is not None else ""
    indent = len(label) if label.strip() else len(label) + 2
    first, *more = wrap(line[len(label) :], columns - (len(label) if label.strip() else indent))
    return [label + first, *(" " * indent + one for one in more)]


def display_width(text: str) -> int:
    """Return the number of columns that a terminal needs for the text."""
    return len(text) if text.isascii() else sum(map(_char_width, text))


def head_of(text: str, width: int) -> str:
    """Return the longest prefix of the text that needs at most `width` columns."""
    used = 0
    for index, char in enumerate(text):
        used += _char_width(char)
        if used > width:
            return text[:index]
    return text


def _char_width(char: str) -> int:
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def _words(text: str, width: int) -> Iterator[tuple[str, str]]:
    """Yield the words with the spaces before them. Long words are parted only if nobody copies them.

    These are lists with commas, and text in scripts without spaces.
    """
    for space, word in _TOKEN.findall(text):
        if display_width(word) <= width or "`" in word or "/" in word or word.startswith("curl "):
            yield space, word
        elif word.isascii():
            first, *more = re.findall(r"[^,]*,|[^,]+", word)
            yield space, first
            yield from (("", part) for part in more)
        else:
            while word:
                part = head_of(word, max(2, width))
                yield space, part
                space, word = "", word[len(part) :]


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
    soft = [column for column, head in enumerate(heads) if head in SHORTENED]
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


def _cut(cells: Table, widths: Sequence[int], wrapped: str, ellipsis: str) -> Iterator[list[str]]:
    """Yield the rows with shortened cells. Further lines of a wrapped cell are rows.

    A line of one word that is longer than the column is a row with one cell, further to the left.
    """
    wraps, columns = cells[0][-1].strip().lower() == wrapped, _total(widths, NARROW_GAP)
    for row in cells:
        short = [shorten(cell, width, ellipsis) for cell, width in zip(row, widths, strict=True)]
        if not wraps:
            yield short
            continue
        first, *more = wrap(row[-1], widths[-1])
        fits = display_width(first) <= widths[-1]
        yield [*short[:-1], first if fits else ""]
        for line in more if fits else (first, *more):
            room = columns - display_width(line)
            is_long = display_width(line) > widths[-1]
            yield [" " * max(0, min(2 * NARROW_GAP, room)) + line] if is_long else [*[""] * (len(row) - 1), line]


def _text(cells: Table, widths: Sequence[int], gap: int, coloured: bool) -> str:
    heads = [head.strip().lower() for head in cells[0]]
    lines = []
    for number, row in enumerate(cells):
        if len(row) < len(heads):
            lines.append(row[0] + "\n")
            continue
        padded = [cell + " " * (width - display_width(cell)) for cell, width in zip(row, widths, strict=True)]
        line = (" " * gap).join(padded).rstrip()
        if coloured:
            shown = [_coloured(head, cell, number == 0) for head, cell in zip(heads, padded, strict=True)]
            line = (" " * gap).join([*shown[:-1], _coloured(heads[-1], row[-1], number == 0)]).rstrip()
        lines.append(line + "\n")
    return "".join(lines)


def _records(cells: Table, columns: int, coloured: bool) -> str:
    """Return the rows as records: a line for each cell that is not empty, and an empty line between two rows."""
    heads, *rows = cells
    indent = len(heads[0]) - len(heads[0].lstrip())
    width = max(display_width(head.strip()) for head in heads) + NARROW_GAP
    records = []
    for row in rows:
        lines = []
        for head, cell in zip(heads, row, strict=True):
            first, *more = wrap(cell.strip(), columns - indent - width)
            if first:
                label = _coloured("", f"{head.strip():<{width}}", coloured)
                lines.append(
                    " " * indent + label + (_coloured(head.strip().lower(), first, False) if coloured else first)
                )
            lines += [" " * (indent + width) + one for one in more]
        records.append("".join(f"{line}\n" for line in lines))
    return "\n".join(records)


def _coloured(head: str, cell: str, is_head: bool) -> str:
    if is_head:
        return click.style(cell, bold=True)
    colour = COLOURS.get(cell.strip()) if head in STATES else None
    return click.style(cell, fg=colour) if colour else cell
