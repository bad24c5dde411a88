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
from serving.cli.context import Session, verb
from serving.cli.data import parse_data, read_data
from serving.cli.example import example_request
from serving.cli.ingress import ingress_target
from serving.cli.names import model_name
from serving.client.errors import ClientError, DoesNotExist, TimedOut, UsageError
from serving.client.http import ApiResponse, exchange
from serving.modelserver.base.headers import REVISION

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
@click.option("--tag", metavar="TAG", default="", help="Send the request to the version with this tag.")
@click.option("--timing", is_flag=True, help="Print the revision and Server-Timing to stderr.")
def command(session: Session, name: str, data: str | None, example: bool, tag: str, timing: bool) -> None:
    """Send one inference request to the model NAME; its traffic split chooses the version."""
    if example == (data is not None):
        raise UsageError("exactly one request is needed: give -d JSON, -d @FILE or --example")
    for option, value in (("NAME", name), ("--tag", tag)):
        if value and (fault := dns_label_fault(value)):
            raise UsageError(f"{option}: {fault}")
    body = read_data(data) if data is not None else b""
    if data is not None:
        parse_data(body)
    try:
        entrance = ingress_target(session, name, tag)
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
    if timing:  # without Server-Timing, our activator has not held the request; that of Knative does not report it
        stages = answer.headers.get("Server-Timing") or ("no Server-Timing" if session.kube else "not held")
        click.echo(f"revision {answer.headers.get(REVISION.decode(), '?')}; {stages}", err=True)
    session.output.raw(content.rstrip(b"\n") + b"\n")


def _show_request(session: Session, name: str, tag: str, request: str) -> None:
    """Print the request as a curl command; for a cluster, whose address may not resolve, only the request."""
    if session.kube:
        click.echo(f"request: {request}", err=True)
        return
    url = path_address(session.platform().gateway, session.namespace, name, tag)
    click.echo(curl(f"{url}/v2/models/{name}/infer", request), err=True)


def _failure(session: Session, name: str, answer: ApiResponse, content: bytes) -> ClientError:
    try:
        known: Any = json.loads(content)
        reason = str(known["error"])
    except (ValueError, KeyError, TypeError, RecursionError):
        reason = content[:200].decode("utf-8", "replace")
    retry = answer.retry_after()
    again = "" if retry is None else f" (retry in {retry:.0f} s)"
    message = f"model {name} responded with {answer.status}: {reason}{again}"
    if answer.status == HTTPStatus.NOT_FOUND:
        return _not_found(session, name, message)
    return UsageError(message) if answer.status in (400, 413, 415) else ClientError(message)


def _not_found(session: Session, name: str, message: str) -> ClientError:
    """Return the error for a 404: the model does not exist, or none of its versions is ready."""
    try:
        model = session.client().get(MODEL, name, session.namespace)
    except NotFound:
        return DoesNotExist(f"model {name} not found in namespace {session.namespace}: `knodel list -A` lists all")
    except KnodelError:  # a caller who may not read Models gets the message of the gateway
        return DoesNotExist(message)
    ready = condition_of(model, "Ready") or {}
    if ready.get("status") == "True":
        return DoesNotExist(message)
    reason = ": ".join(str(ready[part]) for part in ("reason", "message") if ready.get(part)) or "no status yet"
    return TimedOut(f"model {name} is not ready: {reason}: `knodel describe {name}` shows its versions and events")
