"""`knodel predict`."""

from __future__ import annotations

import click

from serving.cli.addresses import curl
from serving.cli.context import Session, verb
from serving.cli.data import parse_data, read_data
from serving.cli.entrance import absence_explained, check_names
from serving.cli.names import model_name, tags
from serving.client.effects import Call, HttpAnswer, HttpRequest, Tell, exchange
from serving.client.errors import UsageError
from serving.client.inference.addresses import path_address
from serving.client.inference.example import example_request
from serving.client.inference.failures import failure_of
from serving.client.inference.ingress import ingress_target
from serving.modelserver.base.headers import REVISION

OK = 200
TIMEOUT = 610.0  # s; a little above the maximum timeout of a Model


@verb(
    "predict",
    prints=False,
    examples=[
        ("Send the model's example", "knodel predict iris --example"),
        ("Send the request of a file", "knodel predict iris -d @request.json"),
        ("Send a request to the version with a tag", "knodel predict iris --tag candidate -d @request.json --timing"),
    ],
)
@model_name()
@click.option("-d", "--data", metavar="JSON|@FILE", help="Request of the Open Inference Protocol; @- is stdin.")
@click.option("--example", is_flag=True, help="Send the model's example and print it as a curl command to stderr.")
@click.option("--tag", metavar="TAG", default="", shell_complete=tags,
              help="Send the request to the version with this tag.")  # fmt: skip
@click.option("--timing", is_flag=True, help="Print the revision and Server-Timing to stderr.")
def command(session: Session, name: str, data: str | None, example: bool, tag: str, timing: bool) -> None:
    """Send one inference request to the model NAME; its traffic split chooses the version."""
    if example == (data is not None):
        raise UsageError("exactly one request is needed: give -d JSON, -d @FILE or --example")
    check_names(name, tag)
    body = read_data(data) if data is not None else b""
    if data is not None:
        parse_data(body)
    driver = session.driver
    with absence_explained(session, name):
        entrance = driver.run(ingress_target(session.ref, name, session.namespace, tag))
        request = driver.run(example_request(entrance, name, TIMEOUT)) if example else ""
    if example:
        body = request.encode()
        _show_request(session, name, tag, request)
    headers = {**entrance.headers, "Content-Type": "application/json"}
    target = f"/v2/models/{name}/infer"
    answer = driver.run(_send(name, HttpRequest(entrance.endpoint, "POST", target, headers, body, TIMEOUT)))
    if answer.status != OK:
        raise driver.run(failure_of(session.ref, name, session.namespace, answer))
    if timing:  # without Server-Timing, our activator has not held the request; that of Knative does not report it
        stages = answer.headers.get("server-timing") or ("no Server-Timing" if session.kube else "not held")
        click.echo(f"revision {answer.headers.get(REVISION.decode(), '?')}; {stages}", err=True)
    session.output.raw(answer.content.rstrip(b"\n") + b"\n")


def _send(name: str, request: HttpRequest) -> Call[HttpAnswer]:
    yield Tell(f"{name}: waiting for its response")
    return (yield from exchange(request))


def _show_request(session: Session, name: str, tag: str, request: str) -> None:
    """Print the request as a curl command; for a cluster, whose address may not resolve, only the request."""
    if session.kube:
        click.echo(f"request: {request}", err=True)
        return
    url = path_address(session.platform().gateway, session.namespace, name, tag)
    click.echo(curl(f"{url}/v2/models/{name}/infer", request), err=True)
