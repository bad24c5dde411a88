"""Print objects to stdout as JSON, YAML or a table, with control characters escaped.

A closed pipe (`knodel list | head -1`) ends the command with exit code 0. A stdout that cannot be written (a full
disk) is an error. Tables are fitted to a terminal and coloured there; otherwise they have whole cells and no colours.
ProgressLine is printed to stderr, and only if stderr is a terminal.
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

from clusters.base.redact import escape_control, escape_terminal
from serving.cli.base.advice import complete_advice
from serving.cli.base.tables import ELLIPSIS, display_width, head_of, lay_out, wrap_line
from serving.client.errors import ClientError

FORMATS = ("table", "wide", "json", "yaml")
STRUCTURED = ("json", "yaml")
DEFAULT_COLUMNS = 80
ASCII: dict[str, str | int | None] = {ELLIPSIS: "...", "→": "->", "×": "x", "█": "#", "░": "."}
"""Replacements of characters in our texts, for terminals without Unicode."""
PROGRESS_DELAY = 0.5  # s before the progress of a call that is usually fast appears
TICK = 1.0  # s between two updates of the elapsed time


class Output:
    """Print results in the chosen format.

    `options` are those of the caller for namespace and cluster; they are added to commands that texts advise.
    """

    def __init__(self, format: str, options: Mapping[str, str] | None = None) -> None:
        self.format = format
        self._options = options or {}
        self._drawn: tuple[str, int | None] | None = None

    @property
    def structured(self) -> bool:
        """Whether the format is JSON or YAML."""
        return self.format in STRUCTURED

    @property
    def wide(self) -> bool:
        """Whether the format is `wide`: all columns, no truncation."""
        return self.format == "wide"

    @property
    def columns(self) -> int | None:
        """The width that a table must fit; None for no limit."""
        if self.wide or not is_terminal(sys.stdout):
            return None
        return shutil.get_terminal_size((DEFAULT_COLUMNS, 24)).columns

    @property
    def live(self) -> bool:
        """Whether `redraw` can replace what it has printed: stdout is a terminal that can move its cursor."""
        return not self.structured and is_terminal(sys.stdout) and os.environ.get("TERM") != "dumb"

    def value(self, value: Any, *, managed_fields: bool = False) -> None:
        """Print a JSON value as JSON or YAML, without `metadata.managedFields` by default, as kubectl does."""
        value = value if managed_fields else without_managed_fields(value)
        if self.format == "yaml":
            import yaml  # takes 20 ms; most commands do not need it

            text = yaml.safe_dump(value, sort_keys=False, allow_unicode=True)
            is_safe = text.replace("\n", "").isprintable()
            self._write(text if is_safe else yaml.safe_dump(value, sort_keys=False, allow_unicode=False))
        else:
            self._write(_escaped(json.dumps(value, indent=2, ensure_ascii=False)) + "\n")

    def record(self, value: Any, *, managed_fields: bool = False) -> None:
        """Print one value of a stream: a line of JSON, or a YAML document."""
        value = value if managed_fields else without_managed_fields(value)
        if self.format == "yaml":
            self._write("---\n")
            self.value(value, managed_fields=True)
        else:
            self._write(_escaped(json.dumps(value, ensure_ascii=False)) + "\n")

    def table(
        self, heads: Sequence[str], rows: Iterable[Sequence[object]], *, optional: Sequence[str] = (), wrapped: str = ""
    ) -> None:
        """Print a table with upper-case heads, as kubectl does, fitted to the terminal.

        If the table does not fit, the `optional` columns are dropped in this order, then long cells are shortened.
        The cells of the column `wrapped`, which must be the last one, are wrapped instead.
        """
        self._write(self.table_text(heads, rows, optional=optional, wrapped=wrapped))

    def table_text(
        self,
        heads: Sequence[str],
        rows: Iterable[Sequence[object]],
        *,
        optional: Sequence[str] = (),
        wrapped: str = "",
        fitted: bool = True,
    ) -> str:
        """Return the text that `table` prints; if it is not `fitted`, with whole cells."""
        cells = [[clean(head.upper()) for head in heads], *([self._cell(cell) for cell in row] for row in rows)]
        coloured = uses_colour(sys.stdout)
        ellipsis = ELLIPSIS if _is_unicode(sys.stdout) else "..."
        columns = self.columns if fitted else None
        return lay_out(cells, columns, optional=optional, wrapped=wrapped, coloured=coloured, ellipsis=ellipsis)

    def text(self, line: str) -> None:
        """Print one line; a terminal that is too narrow gets it wrapped between words."""
        self._write(self.line_text(line))

    def line_text(self, line: str) -> str:
        """Return the text that `text` prints."""
        text, columns = self._cell(line), self.columns
        return "".join(f"{one}\n" for one in ([text] if columns is None else wrap_line(text, columns)))

    def redraw(self, text: str) -> None:
        """Print a text of whole lines in place of the one that this method printed before.

        Lines that do not fit the height of the terminal are left out at the end.
        """
        columns, height = shutil.get_terminal_size((DEFAULT_COLUMNS, 24))
        if self._drawn is not None and (text, columns) == self._drawn:
            return
        before = 0 if self._drawn is None else _rows(self._fitted(self._drawn[0], height), columns)
        self._drawn = (text, columns)
        up = f"\x1b[{before}F\x1b[J" if before else ""
        self._write(up + self._fitted(text, height))

    @staticmethod
    def _fitted(text: str, height: int) -> str:
        lines = text.splitlines()
        if len(lines) < height:
            return text
        kept = lines[: max(1, height - 2)]
        return "".join(f"{line}\n" for line in [*kept, f"({len(lines) - len(kept)} more lines)"])

    def print(self, text: str) -> None:
        """Print what `table_text` and `line_text` returned."""
        self._write(text)

    def lines(self, text: Iterable[str]) -> None:
        """Print lines that are never wrapped, such as those of a file."""
        self._write("".join(f"{self._cell(line)}\n" for line in text))

    def warn(self, line: str) -> None:
        """Print one line to stderr."""
        click.echo(self._cell(line), err=True)

    def _cell(self, value: object) -> str:
        text = clean(complete_advice(str(value), self._options))
        if text.isascii() or _is_unicode(sys.stdout):
            return text
        encoding = sys.stdout.encoding if sys.stdout is not None else "ascii"
        return text.translate(str.maketrans(ASCII)).encode(encoding, "backslashreplace").decode(encoding)

    def raw(self, content: bytes) -> None:
        """Print bytes (logs, the response of a model) unchanged; on a terminal, with control characters escaped."""
        if sys.stdout.isatty():
            self._write("\n".join(clean(line) for line in content.decode("utf-8", "replace").split("\n")))
            return
        self._guarded(lambda: (sys.stdout.buffer.write(content), sys.stdout.buffer.flush()))

    def stream(self, text: str) -> None:
        """Print a part of a text unchanged; on a terminal, with the characters that it obeys escaped."""
        if is_terminal(sys.stdout):
            self._write(escape_terminal(text))
        else:
            self.raw(text.encode("utf-8", "backslashreplace"))

    def _write(self, text: str) -> None:
        encoding = sys.stdout.encoding if sys.stdout is not None else "utf-8"
        text = text.encode(encoding, "backslashreplace").decode(encoding)  # the terminal may lack some characters
        self._guarded(lambda: (sys.stdout.write(text), sys.stdout.flush()))

    @staticmethod
    def _guarded(write: Callable[[], object]) -> None:
        if sys.stdout is None:
            raise ClientError("stdout is closed: open it, or redirect it to a file")
        try:
            write()
        except BrokenPipeError:
            _discard_stdout()
            raise SystemExit(0) from None  # the reader has closed the pipe
        except OSError as error:
            _discard_stdout()
            raise ClientError(f"cannot write to stdout: {error.strerror}") from error


class ProgressLine:
    """A progress line on stderr with the elapsed time, rewritten in place; nothing if stderr is not a terminal.

    It appears after `delay` seconds, so that calls that are usually fast show nothing.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, delay: float = 0.0) -> None:
        self._clock = clock
        self._delay = delay
        self._began = clock()
        self._text = ""
        self._shown = ""
        self._live = is_terminal(sys.stderr) and os.environ.get("TERM") != "dumb"
        self._lock = threading.Lock()
        self._ended = threading.Event()

    def show(self, text: str) -> None:
        """Replace the text of the line. The elapsed time is updated until `clear`."""
        if not self._live:
            return
        with self._lock:
            first, self._text = not self._text, clean(text)
            if self._shown or not self._delay:
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
        pause = self._delay or TICK
        while not ended.wait(pause):
            pause = TICK
            with self._lock:
                if not ended.is_set():
                    self._draw()

    def _draw(self) -> None:
        columns = DEFAULT_COLUMNS
        with contextlib.suppress(OSError):
            columns = os.get_terminal_size(2).columns or DEFAULT_COLUMNS  # of stderr; some terminals report 0
        line = progress_line(self._text, self._clock() - self._began, columns)
        if line != self._shown:
            click.echo(f"\r\033[K{line}", err=True, nl=False)
            self._shown = line


def _rows(text: str, columns: int) -> int:
    """Return the number of rows of a terminal that the lines of a text need."""
    return sum(max(1, -(-display_width(click.unstyle(line)) // columns)) for line in text.splitlines())


def progress_line(text: str, seconds: float, columns: int) -> str:
    """Return the line after `seconds` of waiting; the time comes first, so that a long text does not hide it."""
    return head_of(f"{seconds:.0f}s  {text}" if seconds >= 1 else text, columns - 1)


def is_terminal(stream: TextIO | None) -> bool:
    """Return whether the stream is a terminal."""
    return stream is not None and stream.isatty()


def _is_unicode(stream: TextIO | None) -> bool:
    return stream is None or stream.encoding.lower().replace("-", "").startswith("utf")


def uses_colour(stream: TextIO | None) -> bool:
    """Return whether to colour the stream: a terminal with colours, unless NO_COLOR is set (no-color.org)."""
    return is_terminal(stream) and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def without_managed_fields(value: Any) -> Any:
    """Return an object, or a list of objects, without `metadata.managedFields`; other values unchanged."""
    if not isinstance(value, dict):
        return value
    if isinstance(value.get("items"), list):
        return {**value, "items": [without_managed_fields(item) for item in value["items"]]}
    metadata = value.get("metadata")
    if not isinstance(metadata, dict) or "managedFields" not in metadata:
        return value
    return {**value, "metadata": {key: one for key, one in metadata.items() if key != "managedFields"}}


def clean(value: object) -> str:
    """Return the string with control characters escaped, so that it cannot move the cursor or add a line.

    Trailing newlines are removed: messages of containers have them.
    """
    return escape_control(str(value).rstrip("\n"))


def _escaped(text: str) -> str:
    """Return JSON text with control characters escaped; valid JSON has them only inside strings."""
    if text.replace("\n", "").isprintable():
        return text
    return "".join(char if char.isprintable() or char == "\n" else json.dumps(char)[1:-1] for char in text)


def _discard_stdout() -> None:
    """Redirect stdout to /dev/null; otherwise the interpreter flushes it at exit and prints an error."""
    with Path(os.devnull).open("wb") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())
