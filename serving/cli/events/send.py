"""`knodel events send`: send one CloudEvent to the webhook, signed with the key of its EventSource."""

from __future__ import annotations

import json
import os
import shlex
import uuid
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Final

import click

from clusters.base.errors import Invalid, NotFound
from clusters.base.objects import EVENT_SOURCE, SECRET
from clusters.net.cloudevents import STRUCTURED, to_members
from eventing.auth.hmac_keys import keys_of
from eventing.auth.signing import sign
from eventing.mapping.event_source import read_event_source
from eventing.mapping.presets import MLFLOW
from eventing.mapping.training import TYPE
from eventing.objects.ports import ANY, EventSource, HmacAuth
from eventing.objects.sequence import EventSequence
from serving.cli.context import Session, verb
from serving.cli.data import parse_data, read_data
from serving.cli.names import formats, models, sources
from serving.cli.webhook import webhook_of
from serving.client.client import Client
from serving.client.errors import ClientError, UsageError
from serving.client.http import ApiResponse, exchange

TIMEOUT: Final = 30.0  # s; the webhook responds when the event is on disk
DEFAULT_SOURCE: Final = "knodel"
"""Appended to the source of an EventSource that is a prefix, if the caller gives no source."""
RESULT: Final = "Knodel-Event"


@verb(
    "send",
    examples=[
        ("Report that a training has completed",
         "knodel events send iris --uri s3://models/iris/3 --metric accuracy=0.97"),
        ("Send an event with other data", "knodel events send --type com.example.done -d @data.json"),
    ],
)  # fmt: skip
@click.argument("model", required=False, shell_complete=models)
@click.option("--uri", metavar="URI", help="Location of the artifact.")
@click.option("--version", metavar="TEXT", help="Version label shown in listings.")
@click.option("--digest", metavar="sha256:HEX", help="Expected digest of its files.")
@click.option("--format", "model_format", metavar="FORMAT", shell_complete=formats, help="Format of the artifact.")
@click.option("--metric", "metrics", multiple=True, metavar="NAME=NUMBER", help="Metric of the training.")
@click.option(
    "-d", "--data", metavar="JSON|@FILE", help="Data of the event, instead of the options above; @- is stdin."
)
@click.option("--type", "type", metavar="TYPE", default=TYPE, show_default=True, help="Type of the event.")
@click.option(
    "--source",
    default="",
    metavar="SOURCE",
    shell_complete=sources,
    help="Source of the event [that of the only EventSource].",
)
@click.option("--id", "id", default="", metavar="ID", help="ID of the event [a random UUID].")
@click.option("--sequence", default="", metavar="TEXT", help="Sequence of the event in its source: integer or text.")
@click.option("--url", default="", metavar="URL", help="Address of the webhook [the platform's].")
def send_command(session: Session, model: str | None, type: str, url: str, **named: Any) -> None:
    """Report a completed training of MODEL, or send another event."""
    client = session.client()
    by = _event_source(client, session.namespace, named["source"])
    order = EventSequence.of(named["sequence"])
    trace = os.environ.get("TRACEPARENT", "")  # the trace of the caller, as OpenTelemetry tools set it
    attributes = {
        "id": named["id"] or str(uuid.uuid4()),
        "source": named["source"] or by.source.removesuffix(ANY) + (DEFAULT_SOURCE if by.source.endswith(ANY) else ""),
        "type": type,
        "time": datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "sequence": order.value,
        "sequencetype": order.type,
        "traceparent": trace,
    }
    given = {name: value for name, value in attributes.items() if value}
    event = to_members(given, _data(session, model, named))
    body = json.dumps(event, ensure_ascii=False).encode()
    webhook, signed = webhook_of(session, client, url), _headers(client, by, body)
    headers = {**webhook.headers, **signed}
    with exchange(webhook.endpoint, "POST", webhook.path, body=body, headers=headers, timeout=TIMEOUT) as response:
        content = response.body()
    if response.status >= 300:
        raise _failure(response, content)
    result = response.headers.get(RESULT) or "accepted"
    if session.output.structured:
        session.output.value(event)
        return
    session.output.text(f"event {event['id']} of {event['source']}: {result}")


def _headers(client: Client, by: EventSource, body: bytes) -> dict[str, str]:
    name = by.auth.secret if isinstance(by.auth, HmacAuth) else ""
    source = shlex.quote(by.source)
    try:
        keys = keys_of(client.get(SECRET, name, by.namespace))
    except NotFound:
        keys = ()
    if not keys:
        raise ClientError(
            f"EventSource {by.name} has no key in the Secret {name}: `knodel events allow {source}` creates one"
        )
    try:
        signed = sign(keys[0], f"msg_{uuid.uuid4().hex}", datetime.now(UTC), body)
    except ValueError as error:
        raise ClientError(
            f"the key in the Secret {name} is invalid ({error}): `knodel events allow {source} --rotate` replaces it"
        ) from error
    return {"Content-Type": STRUCTURED, **signed}


def _event_source(client: Client, namespace: str, source: str) -> EventSource:
    """Return the EventSource for `source`, else the only one, whose key signs the event. Raises UsageError.

    EventSources for MLflow are left out: its signatures have another format.
    """
    found = []
    for one in client.list(EVENT_SOURCE, namespace)["items"]:
        with suppress(Invalid):  # the condition Ready of an invalid EventSource reports its faults
            found.append(read_event_source(one))
    usable = (one for one in found if one and isinstance(one.auth, HmacAuth))
    signing = sorted(
        (one for one in usable if not one.mapping or one.mapping.preset != MLFLOW), key=lambda one: one.rank
    )
    fitting = [one for one in signing if not source or one.matches(source)]
    if not fitting:
        raise UsageError(
            f"namespace {namespace} has no EventSource with a key{f' for {source}' if source else ''}: "
            "`knodel events allow SOURCE --models GLOB --storage-prefix PREFIX` creates one"
        )
    if not source and len(fitting) > 1:
        raise UsageError(f"several EventSources have a key: give --source, {', '.join(one.source for one in fitting)}")
    return fitting[0]


def _data(session: Session, model: str | None, named: dict[str, Any]) -> Any:
    fields = {
        "model": model,
        "namespace": session.namespace,
        "storageUri": named["uri"],
        "version": named["version"],
        "digest": named["digest"],
        "modelFormat": named["model_format"],
        "metrics": _metrics(named["metrics"]) or None,
    }
    if named["data"] is None:
        if not (model and named["uri"]):
            raise UsageError("the event has no data: give MODEL and --uri, or the data with -d")
        return {name: value for name, value in fields.items() if value is not None}
    given = [name for name, value in fields.items() if value is not None and name != "namespace"]
    if given:
        raise UsageError(f"-d gives all data of the event: omit {', '.join(given)}")
    return parse_data(read_data(named["data"]))


def _metrics(given: Sequence[str]) -> dict[str, float]:
    found = {}
    for text in given:
        name, _, number = text.partition("=")
        try:
            found[name] = float(number)
        except ValueError:
            raise UsageError(f"--metric {text} is not NAME=NUMBER: write it as accuracy=0.97") from None
    return found


def _failure(answer: ApiResponse, content: bytes) -> ClientError:
    try:
        known: Any = json.loads(content)
        reason = str(known.get("error") or known.get("message"))
        if known.get("kind") == "Status":
            return ClientError(
                f"the API server does not proxy to the webhook ({reason}): give the webhook's address with --url"
            )
    except (ValueError, AttributeError, RecursionError):
        reason = content[:200].decode("utf-8", "replace")
    retry = answer.retry_after()
    again = "" if retry is None else f" (retry in {retry:.0f} s)"
    message = f"the webhook responded with {answer.status}: {reason}{again}"
    return UsageError(message) if answer.status in (400, 403, 413, 415) else ClientError(message)
