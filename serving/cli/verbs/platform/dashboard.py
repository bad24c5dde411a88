"""`knodel dashboard`."""

from __future__ import annotations

import shutil
import subprocess

import click

from serving.cli.context import Session, verb
from serving.client.errors import ClientError
from serving.client.inference.addresses import reachable_host
from serving.client.models.dashboard import dashboard_link
from serving.client.state import running_platform
from serving.types.settings.state import split_address

FORWARD = ("-n", "knodel-system", "port-forward", "service/knodel-dashboard")


@verb(
    "dashboard",
    namespaced=False,
    prints=False,
    examples=[
        ("Open the dashboard in a browser", "knodel dashboard"),
        ("Print the link, for a browser on another machine", "knodel dashboard --no-browser"),
        ("Forward a port to the dashboard of a cluster, until Ctrl-C", "knodel dashboard --kube-context NAME"),
    ],
)
@click.option("--no-browser", is_flag=True, help="Print the link only; for a cluster, the command of the port-forward.")
@click.option("--port", type=click.IntRange(1, 65535), default=8090, show_default=True,
              help="For a cluster: the port of this machine that is forwarded.")  # fmt: skip
def command(session: Session, no_browser: bool, port: int) -> int:
    """Open the dashboard of the platform with a one-time link, which is valid for a minute.

    For a cluster, forward a port with kubectl to the Deployment of `knodel install --dashboard`, and open its login,
    which takes a bearer token.
    """
    if session.kube is not None:
        return _forward(session.kube.name, port, no_browser)
    path = session.client().call(dashboard_link)
    facts = running_platform(session.state)
    if facts is None:
        raise ClientError("the platform has stopped: `knodel up --detach` starts it")
    host, number = split_address(facts.control)
    link = f"http://{reachable_host(host)}:{number}{path}"
    click.echo(link)
    if not no_browser:
        click.launch(link)
    return 0


def _forward(context: str, port: int, no_browser: bool) -> int:
    """Run kubectl until it ends, and return its exit code. Raises ClientError without kubectl."""
    words = ["kubectl", "--context", context, *FORWARD, f"{port}:80"]
    link = f"http://localhost:{port}/dashboard/"
    if no_browser:
        click.echo(f"{' '.join(words)}\n{link}")
        return 0
    if shutil.which("kubectl") is None:
        raise ClientError(f"kubectl is not installed: install it, or forward a port to {FORWARD[-1]} in another way")
    with subprocess.Popen(words) as forwarding:
        click.echo(link)
        click.launch(link)
        return forwarding.wait()
