"""`knodel predict`."""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import Any

import click

from clusters.base.errors import KnodelError, NotFound
from clusters.base.names import dns_label_fault
from clusters.base.objects import MODEL, condition_of
from serving.cli.addresses import curl, path_address
from serving.cli.base.errors import CommandError, NoSuchThing, NotInTime, UsageError
from serving.cli.client.http import Answer, exchange
from serving.cli.context import Session, verb
from serving.cli.data import parse_data, read_data
from serving.cli.example import example_request
from serving.cli.ingress import entrance_of
from serving.cli.names import model_name
from serving.modelserver.base.headers import REVISION

TIMEOUT = 610.0  # s, a little above the longest timeout that a Model may have


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
@click.option("-d", "--data", metavar="JSON|@FILE", help="Open Inference Protocol request; @- is stdin.")
@click.option("--example", is_flag=True, help="Send the model's example and print it as a curl command to stderr.")
@click.option("--tag", default="", help="Send the request to the version with this tag.")
@click.option("--timing", is_flag=True, help="Print the revision and Server-Timing to stderr.")
def command(session: Session, name: str, data: str | None, example: bool, tag: str, timing: bool) -> None:
    """Send one inference request to the model NAME; its traffic split chooses the version."""
    if example == (data is not None):
        raise UsageError("give the request with -d JSON or -d @FILE, or --example to send the model's example")
    for option, value in (("NAME", name), ("--tag", tag)):
        if value and (fault := dns_label_fault(value)):
            raise UsageError(f"{option}: {fault}")
    body = _body(data) if data is not None else b""
    try:
        entrance = entrance_of(session, name, tag)
        request = example_request(entrance, name, TIMEOUT) if example else ""
    except NotFound as error:
        raise _not_found(session, name, str(error)) from error
    if example:
        body = request.encode()
        _show_request(session, name, tag, request)
    headers = {**entrance.headers, "Content-Type": "application/json"}
    target = f"/v2/models/{name}/infer"
    with exchange(entrance.endpoint, "POST", target, body=body, headers=headers, timeout=TIMEOUT) as answer:
        content = answer.body()
    if answer.status != 200:
        raise _failure(session, name, answer, content)
    if timing:
        click.echo(_timing(answer, measures_holding=session.kube is None), err=True)
    session.output.raw(content.rstrip(b"\n") + b"\n")


def _show_request(session: Session, name: str, tag: str, request: str) -> None:
    """Print the request as a command that can be pasted; where no address is known to resolve, the request alone."""
    if session.kube:
        click.echo(f"request: {request}", err=True)
        return
    url = path_address(session.platform().gateway, session.namespace, name, tag)
    click.echo(curl(f"{url}/v2/models/{name}/infer", request), err=True)


def _timing(answer: Answer, *, measures_holding: bool) -> str:
    """Without a Server-Timing nothing was held where the activator is ours; Knative's does not say."""
    stages = answer.headers.get("Server-Timing") or ("not held" if measures_holding else "no Server-Timing")
    return f"revision {answer.headers.get(REVISION.decode(), '?')}; {stages}"


def _body(data: str) -> bytes:
    content = read_data(data)
    parse_data(content)
    return content


def _failure(session: Session, name: str, answer: Answer, content: bytes) -> CommandError:
    try:
        known: Any = json.loads(content)
        reason = str(known["error"])
    except (ValueError, KeyError, TypeError, RecursionError):
        reason = content[:200].decode("utf-8", "replace")
    retry = answer.retry_after()
    again = "" if retry is None else f" (try again in {retry:.0f} s)"
    message = f"model {name} answered {answer.status}: {reason}{again}"
    if answer.status == HTTPStatus.NOT_FOUND:
        return _not_found(session, name, message)
    return UsageError(message) if answer.status in (400, 413, 415) else CommandError(message)


def _not_found(session: Session, name: str, message: str) -> CommandError:
    """The gateway does not know the model: because it does not exist, or because no version of it is ready."""
    try:
        model = session.client().get(MODEL, name, session.namespace)
    except NotFound:
        return NoSuchThing(f"there is no model {name} in namespace {session.namespace}: `knodel list -A` lists all")
    except KnodelError:  # who may not read Models gets the gateway's own words
        return NoSuchThing(message)
    ready = condition_of(model, "Ready") or {}
    if ready.get("status") == "True":
        return NoSuchThing(message)
    reason = ": ".join(str(ready[part]) for part in ("reason", "message") if ready.get(part)) or "it has no status yet"
    return NotInTime(f"model {name} is not ready: {reason}: `knodel describe {name}` shows its versions and events")
