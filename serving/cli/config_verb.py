"""`knodel config`."""

from __future__ import annotations

import click

from serving.apis.settings import settings_to_dict
from serving.cli.context import Session, verb
from serving.cli.output import Output
from serving.cli.settings import settings_in_force


@verb("config")
@click.option("--config", "config", type=click.Path(dir_okay=False), help="Settings file (YAML).")
def command(session: Session, config: str | None) -> None:
    """Print the settings in force: defaults, then the file, then variables; a cluster's are in a ConfigMap."""
    settings = settings_in_force(session, config)
    output = session.output if session.output.structured else Output("yaml")
    output.value(settings_to_dict(settings))
