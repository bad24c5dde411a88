"""`knodel config`."""

from __future__ import annotations

from pathlib import Path

import click

from serving.apis.settings import load_settings, settings_to_dict
from serving.cli.context import Session, verb
from serving.cli.output import Output


@verb("config")
@click.option("--config", "config", type=click.Path(dir_okay=False), help="Settings file (YAML).")
def command(session: Session, config: str | None) -> None:
    """Print the settings in force: defaults, then the file, then KNODEL_* variables."""
    settings = load_settings(Path(config) if config else None)
    output = session.output if session.output.structured else Output("yaml")
    output.value(settings_to_dict(settings))
