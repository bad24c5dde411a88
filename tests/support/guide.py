"""Pages of the documentation as files to write and commands to run: `docs/server.md`, the README and the tour.

A fenced block whose second word is a path is that file. A `console` block is a session: lines that begin with `$ ` are
commands, what follows is what they print, where `…` stands for anything. A command that starts a server goes on until
the session is over.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

GUIDE = Path(__file__).parents[2] / "docs" / "server.md"
CONSOLE = "console"
ANYTHING = "…"
PROMPT = "$ "
SERVERS = ("knodel serve ", "knodel dev ", "python -m serving.modelserver ")
_BLOCK = re.compile(r"^```(\w+)(?: (\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^## (.+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Step:
    """A command, and what it is to print; "" for what nobody looks at."""

    command: str
    expected: str

    @property
    def serves(self) -> bool:
        """Whether it goes on until it is ended."""
        return self.command.startswith(SERVERS)

    def agrees(self, printed: str) -> bool:
        """Whether that is what it is to print."""
        pattern = ".*".join(map(re.escape, self.expected.strip().split(ANYTHING)))
        return re.fullmatch(pattern, printed.strip(), re.DOTALL) is not None


@dataclass(frozen=True, slots=True)
class Session:
    """Commands of one block, under a heading; "" before the first one."""

    heading: str
    steps: tuple[Step, ...]


def files(text: str) -> Iterator[tuple[str, str]]:
    """(path, content) of each file."""
    return ((path, content) for _, path, content in _BLOCK.findall(text) if path)


def sessions(text: str) -> Iterator[Session]:
    """All of them, in order."""
    for block in _BLOCK.finditer(text):
        if block[1] == CONSOLE:
            *_, heading = "", *_HEADING.findall(text[: block.start()])
            yield Session(heading, tuple(_steps(block[3])))


def _steps(block: str) -> Iterator[Step]:
    for part in re.split(rf"^{re.escape(PROMPT)}", block, flags=re.MULTILINE)[1:]:
        lines = part.splitlines(keepends=True)
        ends = next(number for number, line in enumerate(lines, 1) if not line.endswith("\\\n"))
        yield Step("".join(lines[:ends]).rstrip("\n"), "".join(lines[ends:]))
