"""Parse command lines with the click commands of `knodel`, without running them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from itertools import dropwhile

import click

from serving.cli.main import knodel

ASSIGNMENT = re.compile(r"[A-Z_]+=")
SUBSTITUTION = re.compile(r'^eval "\$\((.*)\)"$')


def find_command(words: Sequence[str]) -> click.Command:
    """Return the command of these verbs. Raises UsageError for an unknown verb."""
    command: click.Command = knodel
    for word in words:
        assert isinstance(command, click.Group)
        found = command.get_command(click.Context(command), word)
        if found is None:
            raise click.UsageError(f"there is no verb {word!r} in {' '.join(words)}")
        command = found
    return command


def parse_command(line: str) -> None:
    """Check verbs, options and values of a command line. Raises ClickException if the command refuses it."""
    substituted = SUBSTITUTION.fullmatch(line)
    program, *arguments = dropwhile(ASSIGNMENT.match, shlex.split(substituted[1] if substituted else line))
    assert program == "knodel", line
    command: click.Command = knodel
    while isinstance(command, click.Group):
        if arguments == ["--help"]:
            return
        context = command.make_context("knodel", list(arguments))
        arguments = [*context._protected_args, *context.args]
        if not arguments:
            return  # `knodel --help`
        command = find_in(command, arguments.pop(0))
    command.make_context(command.name, list(arguments))


def find_in(group: click.Group, name: str) -> click.Command:
    """Return a verb of a group. Raises UsageError."""
    found = group.get_command(click.Context(group), name)
    if found is None:
        raise click.UsageError(f"there is no verb {name!r}")
    return found


def examples_of(command: click.Command) -> list[str]:
    """Return the command lines of the examples in a verb's help."""
    lines = [line.strip() for line in (command.epilog or "").splitlines()]
    return [line for line in lines if line.startswith(("knodel ", "eval "))]
