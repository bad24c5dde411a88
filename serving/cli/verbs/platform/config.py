"""`knodel config`."""

from __future__ import annotations

import click

from clusters.base.errors import KnodelError
from serving.cli.base.output import Output
from serving.cli.context import Session, verb
from serving.cli.doctor.ports import listen_addresses
from serving.cli.settings import settings_in_force
from serving.client.state import running_platform
from serving.types.settings.settings import Settings, describe_settings, settings_to_dict


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
    """Print the settings of `knodel up`: defaults, overridden by the file, overridden by variables.

    If a running platform has other settings, for example because of `--port`, its addresses are printed to stderr. With
    --kube-context, print the settings of the cluster.
    """
    if describe:
        _describe(session.output)
        return
    settings = settings_in_force(session, config)
    if session.kube is None:
        _warn_of_other_addresses(session, settings)
    output = session.output if session.output.structured else Output("yaml")
    output.value(settings_to_dict(settings))


def _warn_of_other_addresses(session: Session, settings: Settings) -> None:
    """Print the addresses of the running platform to stderr if they differ from the settings."""
    try:
        facts = running_platform(session.state)
    except KnodelError:  # an unreadable state folder does not concern the settings
        return
    if facts is None:
        return
    has = [facts.gateway, facts.control, facts.control_tls]
    if has != [f"{address}:{port}" for address, port in listen_addresses(settings)]:
        shown = f"gateway {has[0]}, events and probes {has[1]}, control API {has[2]}"
        session.output.warn(f"the platform on {session.state} runs with other settings: {shown}")


def _describe(output: Output) -> None:
    described = describe_settings()
    if output.structured:
        output.value(described)
    else:
        titles = ["key", "variable", "default", "unit", "for"]
        output.table(titles, [[str(one[title]) for title in titles] for one in described], wrapped="for")
