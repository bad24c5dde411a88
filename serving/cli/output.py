"""The only writer to stdout: objects as JSON, YAML or a table; strings of servers are made harmless for a terminal.

A reader that leaves (`knodel list | head -1`) ends the command quietly; a stdout that takes nothing more (a full disk)
fails it. Progress goes to stderr, and only to a terminal.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import click

from serving.cli.errors import CommandError

FORMATS = ("table", "json", "yaml")
USUAL_COLUMNS = 80


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

            text = yaml.safe_dump(value, sort_keys=False, allow_unicode=True)
            harmless = text.replace("\n", "").isprintable()
            self._write(text if harmless else yaml.safe_dump(value, sort_keys=False, allow_unicode=False))
        else:
            self._write(_escaped(json.dumps(value, indent=2, ensure_ascii=False)) + "\n")

    def table(self, heads: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
        """Columns under upper-case heads, as kubectl prints them."""
        cells = [[clean(head.upper()) for head in heads], *([clean(cell) for cell in row] for row in rows)]
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
        encoding = sys.stdout.encoding if sys.stdout is not None else "utf-8"
        text = text.encode(encoding, "backslashreplace").decode(encoding)  # what this terminal cannot show
        self._guarded(lambda: (sys.stdout.write(text), sys.stdout.flush()))

    @staticmethod
    def _guarded(write: Callable[[], object]) -> None:
        if sys.stdout is None:
            raise CommandError("stdout is closed: there is nowhere to print to")
        try:
            write()
        except BrokenPipeError:
            _give_up_stdout()
            raise SystemExit(0) from None  # the reader has what it wanted
        except OSError as error:
            _give_up_stdout()
            raise CommandError(f"cannot write to stdout: {error.strerror}") from error


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
    """A string without control characters: a hostile name must not move the cursor or forge a line.

    Newlines at its end are dropped: messages of containers end so.
    """
    text = str(value).rstrip("\n")
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


def _escaped(text: str) -> str:
    """JSON text with escapes for what could act on a terminal; such characters stand within strings only."""
    if text.replace("\n", "").isprintable():
        return text
    return "".join(char if char.isprintable() or char == "\n" else json.dumps(char)[1:-1] for char in text)


def _give_up_stdout() -> None:
    """The interpreter would flush stdout again at exit and complain."""
    with Path(os.devnull).open("wb") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())


def _columns() -> int:
    """Of the terminal; one that does not know (0) is taken for a usual one."""
    with contextlib.suppress(OSError):
        return os.get_terminal_size(2).columns or USUAL_COLUMNS
    return USUAL_COLUMNS
