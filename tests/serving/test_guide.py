"""docs/server.md names every option, variable and format that there is, and no other."""

from __future__ import annotations

import re
from collections.abc import Iterator

import click
import pytest

from serving.cli.verbs.platform.serve import command
from serving.engines.base.registry import FORMATS
from serving.modelserver.base import options
from tests.support.guide import GUIDE, files, sessions

TEXT = GUIDE.read_text()
OF_ALL_VERBS = {"--namespace", "-n", "--output", "-o", "--state", "--kube-context", "--help", "-h"}


def table(heading: str) -> set[str]:
    """The options in the table whose first column is headed so."""
    (rows,) = re.findall(rf"^\| `{re.escape(heading)}` \|.*\n((?:\|.*\n)+)", TEXT, re.MULTILINE)
    return set(re.findall(r"(?<=[` ])--[a-z-]+", "\n".join(row.split("|")[1] for row in rows.splitlines())))


def of_command() -> Iterator[str]:
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            yield from parameter.opts


def test_the_guide_has_each_option_of_the_command() -> None:
    assert table("knodel serve") == set(of_command()) - OF_ALL_VERBS


def test_the_guide_has_each_option_of_the_container() -> None:
    parser = options._parser()
    known = {name for action in parser._actions for name in action.option_strings}
    assert table("python -m serving.modelserver") == known - OF_ALL_VERBS


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_the_guide_has_each_format_with_its_files_and_package(name: str) -> None:
    (row,) = [line for line in TEXT.splitlines() if line.startswith("| ") and f"`{name}`" in line.split("|")[1]]
    made = FORMATS[name]
    if not made.runs_code:
        marks = {*made.suffixes, *made.names, *made.beside}
        assert {name.lower() for name in re.findall(r"`\*?([^`]+)`", row.split("|")[2])} == marks
    assert f"knodel[{made.extra or 'server'}]" in row or name == "python"


def test_the_guide_has_examples_that_begin_with_a_server() -> None:
    assert len(list(files(TEXT))) >= 3
    assert all(any(step.serves for step in session.steps) for session in sessions(TEXT))
