"""`knodel render`."""

from __future__ import annotations

import click

from serving.cli.base.output import Output
from serving.cli.context import Session, verb
from serving.cli.files import models_of
from serving.cli.names import models_file
from serving.cli.settings import settings_in_force
from serving.makers.knative import render


@verb("render", examples=[("Print the objects of a file's Models", "knodel render -f models.yaml")])
@models_file()
@click.option("--config", "config", type=click.Path(dir_okay=False), help="Settings file (YAML).")
def command(session: Session, source: str, config: str | None) -> None:
    """Print the objects that Knodel would apply. No platform is needed; of a cluster, only the settings are read."""
    settings = settings_in_force(session, config)
    objects = [
        obj
        for model in models_of(source, session.namespace, namespace_given=session.namespace_given)
        for obj in render(model, settings)
    ]
    output = session.output if session.output.structured else Output("yaml")
    output.value({"apiVersion": "v1", "kind": "List", "items": objects})
