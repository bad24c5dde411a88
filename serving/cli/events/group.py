"""`knodel events`: register its verbs."""

from __future__ import annotations

import click

from serving.cli.events.allow import allow_command, deny_command
from serving.cli.events.list import list_command, replay_command, show_command
from serving.cli.events.send import send_command
from serving.cli.events.sources import sources_command
from serving.cli.events.trace import trace_command


@click.group("events")
def command() -> None:
    """Manage event sources and inspect events."""


for _one in (list_command, show_command, send_command, replay_command, trace_command, allow_command, deny_command,
             sources_command):  # fmt: skip
    command.add_command(_one)
