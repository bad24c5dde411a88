"""`knodel config`."""

from __future__ import annotations

import click

from serving.apis.settings import describe_settings, settings_to_dict
from serving.cli.context import Session, verb
from serving.cli.output import Output
from serving.cli.settings import settings_in_force


@verb(
    "config",
    namespaced=False,
    examples=[
        ("Print the settings of a file with its defaults", "knodel config --config settings.yaml"),
        ("List every setting with its variable", "knodel config --describe"),
    ],
)
@click.option("--config", "config", type=click.Path(dir_okay=False), help="Settings file (YAML).")
@click.option("--describe", is_flag=True, help="List every setting with its variable, default and purpose.")
def command(session: Session, config: str | None, describe: bool) -> None:
    """Print the settings in force: defaults, overridden by the file, overridden by variables."""
    if describe:
        _describe(session.output)
        return
    settings = settings_in_force(session, config)
    output = session.output if session.output.structured else Output("yaml")
    output.value(settings_to_dict(settings))


def _describe(output: Output) -> None:
    described = describe_settings()
    if output.structured:
        output.value(described)
    else:
        titles = ["key", "variable", "default", "unit", "for"]
        output.table(titles, [[str(one[title]) for title in titles] for one in described], wrapped="for")
