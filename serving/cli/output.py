"""The only writer to stdout: objects as JSON, YAML or a table; strings of servers are made harmless for a terminal.

A closed stdout (`knodel list | head -1`) ends the command quietly; progress goes to stderr, and only to a terminal.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import click

FORMATS = ("table", "json", "yaml")


class Output:
    """Prints results in the chosen format."""

    def __init__(self, format: str) -> None:
        self.format = format

    @property
    def structured(self) -> bool:
        """Whether whole objects are wanted rather than a table."""
        return self.format != "table"

    def value(self, value: Any) -> None:
        """A JSON value, in JSON or YAML."""
        if self.format == "yaml":
            import yaml  # 20 ms that most commands save

            self._write(yaml.safe_dump(value, sort_keys=False, allow_unicode=True))
        else:
            self._write(json.dumps(value, indent=2, ensure_ascii=False) + "\n")

    def table(self, heads: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
        """Columns under upper-case heads, as kubectl prints them."""
        cells = [[head.upper() for head in heads], *([clean(cell) for cell in row] for row in rows)]
        widths = [max(len(row[column]) for row in cells) for column in range(len(heads))]
        for row in cells:
            padded = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
            self._write("   ".join(padded).rstrip() + "\n")

    def text(self, line: str) -> None:
        """One line for people."""
        self._write(clean(line) + "\n")

    def raw(self, content: bytes) -> None:
        """Bytes as they are (logs, an answer of a model), escape codes included only when stdout is no terminal."""
        if sys.stdout.isatty():
            self._write("\n".join(clean(line) for line in content.decode("utf-8", "replace").split("\n")))
            return
        self._guarded(lambda: (sys.stdout.buffer.write(content), sys.stdout.buffer.flush()))

    def _write(self, text: str) -> None:
        self._guarded(lambda: (sys.stdout.write(text), sys.stdout.flush()))

    @staticmethod
    def _guarded(write: Any) -> None:
        try:
            write()
        except BrokenPipeError:
            # The reader has what it wanted. The interpreter would flush stdout again at exit and complain.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise SystemExit(0) from None


class Progress:
    """What is being waited for, on stderr, rewritten in place; silent unless stderr is a terminal."""

    def __init__(self) -> None:
        self._shown = ""
        self._live = sys.stderr.isatty()

    def show(self, text: str) -> None:
        """Replace the line."""
        text = clean(text)[: _columns() - 1]
        if self._live and text != self._shown:
            click.echo(f"\r\033[K{text}", err=True, nl=False)
            self._shown = text

    def clear(self) -> None:
        """Remove the line."""
        if self._shown:
            click.echo("\r\033[K", err=True, nl=False)
            self._shown = ""


def clean(value: object) -> str:
    """A string without control characters: a hostile name must not move the cursor or forge a line."""
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in str(value))


def _columns() -> int:
    try:
        return os.get_terminal_size(2).columns
    except OSError:
        return 80
