"""Show the progress of a long call: a line on a terminal, a bar in a notebook, nothing elsewhere.

An operation reports texts such as "uploading 12 MiB of 40 MiB (30 %)". A text with a percentage gets a bar.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable
from typing import Any, Final

from knodel.display.html import element, joined, muted, progress_bar
from serving.client.blocking import NoProgress, Progress

UPDATE_INTERVAL: Final = 0.1  # s between two updates in a notebook; each is a message to the browser
_WIDTH: Final = 20  # characters of a bar
_PERCENT: Final = re.compile(r"\((\d{1,2}|100) ?%\)")


class TerminalProgress:
    """A line on stderr with the elapsed time, rewritten in place."""

    def __init__(self) -> None:
        from serving.cli.base.output import ProgressLine  # on use: needs the packages of the command

        self._line = ProgressLine()

    def show(self, text: str) -> None:
        """Replace the text of the line."""
        percent = percent_of(text)
        self._line.show(text if percent is None else f"{text_bar(percent)} {text}")

    def clear(self) -> None:
        """Remove the line."""
        self._line.clear()


class NotebookProgress:
    """A text in the output of a notebook's cell, updated in place. `display` is that of IPython."""

    def __init__(self, display: Callable[..., Any], clock: Callable[[], float] = time.monotonic) -> None:
        self._display = display
        self._clock = clock
        self._began = self._updated = clock()
        self._text = ""
        self._handle: Any = None

    def show(self, text: str) -> None:
        """Replace the text, at most every `UPDATE_INTERVAL` seconds."""
        self._text = text
        if self._handle is None or self._clock() - self._updated >= UPDATE_INTERVAL:
            self._draw()

    def clear(self) -> None:
        """Show the duration in place of the text."""
        if self._handle is not None:
            seconds = f"{self._clock() - self._began:.1f} s"
            self._handle.update(_Page(muted(seconds), seconds))
            self._handle = None

    def _draw(self) -> None:
        self._updated = self._clock()
        shown = _Page(notebook_line(self._text, self._updated - self._began), self._text)
        if self._handle is None:
            self._handle = self._display(shown, display_id=True)
        else:
            self._handle.update(shown)


class _Page:
    """What IPython displays: HTML, and text for frontends without."""

    def __init__(self, content: str, text: str) -> None:
        self._content = content
        self._text = text

    def _repr_html_(self) -> str:
        return self._content

    def __repr__(self) -> str:
        return self._text


def new_progress(shown: bool = True) -> Progress:
    """Return where a call that begins now shows its progress; nowhere unless `shown`.

    Example:
        progress = new_progress()
        progress.show("uploading 12 MiB of 40 MiB (30 %)")
        progress.clear()
    """
    if not shown:
        return NoProgress()
    display = notebook_display()
    if display is not None:
        return NotebookProgress(display)
    return TerminalProgress() if sys.stderr is not None and sys.stderr.isatty() else NoProgress()


def notebook_display() -> Callable[..., Any] | None:
    """Return IPython's `display` if this code runs in a kernel, else None. Imports nothing in other programs."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if not hasattr(shell, "kernel"):  # a terminal has a shell without kernel
        return None
    from IPython.display import display

    shows: Callable[..., Any] = display
    return shows


def percent_of(text: str) -> int | None:
    """Return the percentage in brackets in a text, such as `(30 %)`; None without one. Pure."""
    found = _PERCENT.search(text)
    return None if found is None else int(found[1])


def text_bar(percent: int) -> str:
    """Return a bar of `_WIDTH` characters. Pure."""
    full = percent * _WIDTH // 100
    return "█" * full + "░" * (_WIDTH - full)


def notebook_line(text: str, seconds: float) -> str:
    """Return the HTML of a progress. Pure."""
    percent = percent_of(text)
    drawn = "" if percent is None else progress_bar(percent)
    return element("div", joined(text, " ", muted(f"{seconds:.1f} s")), drawn, style="color:inherit;")
