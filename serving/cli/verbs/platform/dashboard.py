"""`knodel dashboard`."""

from __future__ import annotations

import click

from serving.cli.context import Session, verb
from serving.client.errors import ClientError
from serving.client.inference.addresses import reachable_host
from serving.client.models.dashboard import dashboard_link
from serving.client.state import running_platform
from serving.types.settings.state import split_address


@verb(
    "dashboard",
    place="machine",
    namespaced=False,
    prints=False,
    examples=[
        ("Open the dashboard in a browser", "knodel dashboard"),
        ("Print the link, for a browser on another machine", "knodel dashboard --no-browser"),
    ],
)
@click.option("--no-browser", is_flag=True, help="Print the link only.")
def command(session: Session, no_browser: bool) -> None:
    """Open the dashboard of the platform with a one-time link, which is valid for a minute."""
    path = session.client().call(dashboard_link)
    facts = running_platform(session.state)
    if facts is None:
        raise ClientError("the platform has stopped: `knodel up --detach` starts it")
    host, port = split_address(facts.control)
    link = f"http://{reachable_host(host)}:{port}{path}"
    click.echo(link)
    if not no_browser:
        click.launch(link)
