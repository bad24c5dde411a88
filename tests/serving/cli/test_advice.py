"""Advice in messages: every command that an error, a condition, a finding or a note names is one that works.

The table below has each command as messages have it, with `{}` for a value that is filled in, and the same as a person
would type it. A message with other advice fails the first test, until its command is in the table too.
`tests/platform/test_advice.py` runs them on a platform.
"""

from __future__ import annotations

import re
import shlex

import pytest

from tests.serving.cli.advice import ADVICE, PLACEHOLDERS
from tests.serving.cli.advice_scan import HOLE, advised, advised_commands
from tests.serving.cli.command_lines import parse_command


def test_every_advised_command_is_in_the_table_and_no_other() -> None:
    found = advised_commands()

    assert {line: places for line, places in found.items() if line not in ADVICE} == {}
    assert [line for line in ADVICE if line not in found] == []


@pytest.mark.parametrize(("advice", "typed"), ADVICE.items(), ids=list(ADVICE))
def test_what_is_typed_is_what_is_advised(advice: str, typed: str) -> None:
    """Values are filled in, and the placeholders that a person knows to replace; nothing is added."""
    words = "|".join(map(re.escape, (HOLE, *PLACEHOLDERS)))
    pattern = "".join(
        ".*" if part == HOLE else r"\S+" if part in PLACEHOLDERS else re.escape(part)
        for part in re.split(f"({words})", advice)
    )
    assert re.fullmatch(pattern, typed), pattern


@pytest.mark.parametrize("typed", ADVICE.values())
def test_every_advised_command_is_one_that_the_command_takes(typed: str) -> None:
    parse_command(typed)


def test_advice_beside_our_own_commands_is_known_too() -> None:
    """Commands of other programs, which cannot be run here: their first words are reviewed once."""
    programs = {"chmod", "fuser", "kubectl", "mlflow", "mount", "pip", "ps", "ulimit"}
    first = {shlex.split(span)[0] for span, _ in advised() if re.match(r"[a-z]+ [-a-z]", span)}

    assert first - programs - {"knodel", "mode:", "model:", "visibility:"} == set()
