"""`knodel config`."""

from __future__ import annotations

from collections.abc import Sequence

import click

from clusters.base.errors import KnodelError
from serving.cli.base.output import Output
from serving.cli.context import Session, verb
from serving.cli.doctor.ports import listen_addresses
from serving.cli.settings import change_settings, settings_in_force
from serving.client.errors import UsageError
from serving.client.state import running_platform
from serving.types.settings.settings import Settings, describe_settings, settings_to_dict


@verb(
    "config",
    namespaced=False,
    examples=[
        ("Print the settings of a file with its defaults", "knodel config --config settings.yaml"),
        ("List every setting with its variable", "knodel config --describe"),
        (
            "Name the store of local files that are deployed to a cluster",
            "knodel config --kube-context NAME --set artifacts.prefix=s3://models/team",
        ),
    ],
)
@click.option("--config", "config", type=click.Path(dir_okay=False), help="Settings file (YAML).")
@click.option("--describe", is_flag=True, help="List every setting with its variable, default and purpose.")
@click.option("--set", "values", metavar="KEY=VALUE", multiple=True,
              help="Change a setting of the cluster; an empty VALUE restores the default.")  # fmt: skip
def command(session: Session, config: str | None, describe: bool, values: tuple[str, ...]) -> None:
    """Print the settings of `knodel up`: defaults, overridden by the file, overridden by variables.

    If a running platform has other settings, for example because of `--port`, its addresses are printed to stderr. With
    --kube-context, print the settings of the cluster.
    """
    if describe:
        _describe(session.output)
        return
    settings = _changed(session, values) if values else settings_in_force(session, config)
    if session.kube is None:
        _warn_of_other_addresses(session, settings)
    output = session.output if session.output.structured else Output("yaml")
    output.value(settings_to_dict(settings))


def _changed(session: Session, values: Sequence[str]) -> Settings:
    if session.kube is None:
        raise UsageError("--set is for a cluster: on this machine, write a file for `knodel up --config FILE`")
    given = {}
    for text in values:
        key, equals, value = text.partition("=")
        if not equals:
            raise UsageError(f"--set {text}: write KEY=VALUE; `knodel config --describe` lists the keys")
        given[key] = value
    return change_settings(session.client(), session.kube.name, given)


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
