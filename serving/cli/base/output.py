"""Write objects to stdout as JSON, YAML or a table, with strings of servers made harmless for a terminal.

A reader that leaves (`knodel list | head -1`) ends the command quietly; a stdout that takes nothing more (a full disk)
fails it. Tables are fitted to a terminal and coloured there; anything else gets every cell whole and no colours.
Progress goes to stderr, and only to a terminal.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

import click

from clusters.base.redact import escape_control
from serving.cli.base.advice import complete_advice
from serving.cli.base.errors import CommandError
from serving.cli.base.tables import lay_out

FORMATS = ("table", "wide", "json", "yaml")
STRUCTURED = ("json", "yaml")
USUAL_COLUMNS = 80
TICK = 1.0  # s between two updates of the elapsed time


class Output:
    """Prints results in the chosen format."""

    def __init__(self, format: str, options: Mapping[str, str] | None = None) -> None:
        """Advice in texts gets the `options` by which the caller chose namespace and place."""
        self.format = format
        self._options = options or {}

    @property
    def structured(self) -> bool:
        """Whether whole objects are wanted rather than a table."""
        return self.format in STRUCTURED

    @property
    def wide(self) -> bool:
        """Whether every column is wanted, with its cells whole."""
        return self.format == "wide"

    @property
    def columns(self) -> int | None:
        """The width that a table must fit; None when nothing may be cut."""
        if self.wide or not is_terminal(sys.stdout):
            return None
        return shutil.get_terminal_size((USUAL_COLUMNS, 24)).columns

    def value(self, value: Any, *, managed_fields: bool = False) -> None:
        """Print a JSON value in JSON or YAML; `metadata.managedFields` of objects only on request, as kubectl does."""
        value = value if managed_fields else without_managed_fields(value)
        if self.format == "yaml":
            import yaml  # 20 ms that most commands save

            text = yaml.safe_dump(value, sort_keys=False, allow_unicode=True)
            harmless = text.replace("\n", "").isprintable()
            self._write(text if harmless else yaml.safe_dump(value, sort_keys=False, allow_unicode=False))
        else:
            self._write(_escaped(json.dumps(value, indent=2, ensure_ascii=False)) + "\n")

    def table(
        self, heads: Sequence[str], rows: Iterable[Sequence[object]], *, optional: Sequence[str] = (), wrapped: str = ""
    ) -> None:
        """Print columns under upper-case heads, as kubectl does, fitted to the terminal.

        `optional` names columns to drop, in this order, when the table does not fit; `wrapped` names the last column
        when its cells are to go on below instead of being shortened.
        """
        cells = [[clean(head.upper()) for head in heads], *([self._cell(cell) for cell in row] for row in rows)]
        coloured = uses_colour(sys.stdout)
        self._write(lay_out(cells, self.columns, optional=optional, wrapped=wrapped, coloured=coloured))

    def text(self, line: str) -> None:
        """One line for people."""
        self._write(self._cell(line) + "\n")

    def note(self, line: str) -> None:
        """Print one line for people beside the result, on stderr."""
        click.echo(self._cell(line), err=True)

    def _cell(self, value: object) -> str:
        return clean(complete_advice(str(value), self._options))

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
    """What is being waited for and for how long, on stderr, rewritten in place; silent unless stderr is a terminal."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began = clock()
        self._text = ""
        self._shown = ""
        self._live = is_terminal(sys.stderr)
        self._lock = threading.Lock()
        self._ended = threading.Event()

    def show(self, text: str) -> None:
        """Replace the line. Its elapsed seconds are updated until `clear`."""
        if not self._live:
            return
        with self._lock:
            first, self._text = not self._text, clean(text)
            self._draw()
        if first:
            threading.Thread(target=self._tick, args=(self._ended,), daemon=True).start()

    def clear(self) -> None:
        """Remove the line."""
        with self._lock:
            self._ended.set()
            self._ended = threading.Event()
            self._text = ""
            if self._shown:
                click.echo("\r\033[K", err=True, nl=False)
                self._shown = ""

    def _tick(self, ended: threading.Event) -> None:
        while not ended.wait(TICK):
            with self._lock:
                if not ended.is_set():
                    self._draw()

    def _draw(self) -> None:
        line = progress_line(self._text, self._clock() - self._began, _columns())
        if line != self._shown:
            click.echo(f"\r\033[K{line}", err=True, nl=False)
            self._shown = line


def progress_line(text: str, seconds: float, columns: int) -> str:
    """Return the line of a wait that has taken `seconds`: the time comes first, so that a long text cannot hide it."""
    return f"{seconds:.0f}s  {text}"[: columns - 1] if seconds >= 1 else text[: columns - 1]


def is_terminal(stream: TextIO | None) -> bool:
    """Whether a person reads the stream."""
    return stream is not None and stream.isatty()


def uses_colour(stream: TextIO | None) -> bool:
    """Whether the stream may have colours: a terminal that knows them, unless NO_COLOR is set (no-color.org)."""
    return is_terminal(stream) and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def without_managed_fields(value: Any) -> Any:
    """Return an object, or a list of objects, without `metadata.managedFields`; other values as they are."""
    if not isinstance(value, dict):
        return value
    if isinstance(value.get("items"), list):
        return {**value, "items": [without_managed_fields(item) for item in value["items"]]}
    metadata = value.get("metadata")
    if not isinstance(metadata, dict) or "managedFields" not in metadata:
        return value
    return {**value, "metadata": {key: one for key, one in metadata.items() if key != "managedFields"}}


def clean(value: object) -> str:
    """A string without control characters: a hostile name must not move the cursor or forge a line.

    Newlines at its end are dropped: messages of containers end so.
    """
    return escape_control(str(value).rstrip("\n"))


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
