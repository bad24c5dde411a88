"""As much of Gherkin as feature files of CloudEvents use: outlines with examples, steps with a text or a table."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, field

KEYWORDS = ("Given ", "When ", "Then ", "And ")


@dataclass
class Step:
    """One line, and what hangs on it."""

    text: str
    block: str = ""
    table: list[list[str]] = field(default_factory=list)


@dataclass
class Scenario:
    """A scenario whose placeholders are filled in."""

    name: str
    steps: list[Step]


def scenarios(text: str) -> Iterator[Scenario]:
    """Every scenario of a feature file, one for each row of its examples."""
    for outline in text.split("Scenario Outline:")[1:]:
        body, _, examples = outline.partition("Examples:")
        names, *rows = [_cells(line) for line in examples.splitlines() if line.strip().startswith("|")]
        for row in rows:
            filled = body
            for name, value in zip(names, row, strict=True):
                filled = filled.replace(f"<{name}>", value)
            title, _, lines = filled.partition("\n")
            yield Scenario(title.strip(), list(_steps(lines)))


def _steps(text: str) -> Iterator[Step]:
    pieces = text.split('"""')
    step: Step | None = None
    for number, piece in enumerate(pieces):
        if number % 2:
            assert step is not None
            step.block = textwrap.dedent(piece.strip("\n").rstrip(" "))
            continue
        for line in filter(None, map(str.strip, piece.splitlines())):
            if line.startswith(KEYWORDS):
                if step is not None:
                    yield step
                step = Step(line.partition(" ")[2])
            elif line.startswith("|") and step is not None:
                step.table.append(_cells(line))
    if step is not None:
        yield step


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]
