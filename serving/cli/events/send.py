"""`knodel events send`: one CloudEvent to the webhook, signed with the key of its EventSource."""

from __future__ import annotations

import json
import os
import shlex
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

import click

from clusters.base.errors import NotFound
from clusters.base.objects import EVENT_SOURCE, SECRET, Object
from eventing.auth.hmac_keys import keys_of
from eventing.auth.signing import sign
from eventing.mapping.event_source import read_event_source
from eventing.mapping.presets import MLFLOW
from eventing.mapping.training import TYPE
from eventing.objects.ports import ANY, EventSource, HmacAuth
from eventing.objects.sequence import EventSequence
from serving.cli.base.errors import CommandError, UsageError
from serving.cli.client.client import Client
from serving.cli.client.http import Answer, exchange
from serving.cli.context import Session, verb
from serving.cli.data import parse_data, read_data
from serving.cli.names import formats, models, sources
from serving.cli.webhook import Webhook, webhook_of

STRUCTURED: Final = "application/cloudevents+json"
TIMEOUT: Final = 30.0  # s; the webhook answers once the event is on disk
OWN: Final = "knodel"
"""What follows a source that is a prefix, when the caller names none."""
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
@click.option("--type", "type", default=TYPE, show_default=True, help="Type of the event.")
@click.option(
    "--source",
    default="",
    metavar="SOURCE",
    shell_complete=sources,
    help="Source of the event [that of the only EventSource].",
)
@click.option("--id", "id", default="", metavar="ID", help="Id of the event [a new one].")
@click.option("--sequence", default="", metavar="TEXT", help="Sequence of the event in its source, an integer or text.")
@click.option("--url", default="", metavar="URL", help="Address of the webhook [the platform's].")
def send_command(session: Session, model: str | None, type: str, url: str, **named: Any) -> None:
    """Report that a training of the model MODEL has completed, or send another event."""
    client = session.client()
    by = _event_source(client, session.namespace, named["source"])
    event = {
        "specversion": "1.0",
        "id": named["id"] or str(uuid.uuid4()),
        "source": named["source"] or by.source.removesuffix(ANY) + (OWN if by.source.endswith(ANY) else ""),
        "type": type,
        "time": datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "datacontenttype": "application/json",
        **_extensions(named["sequence"]),
        "data": _data(session, model, named),
    }
    body = json.dumps(event, ensure_ascii=False).encode()
    result = _post(webhook_of(session, client, url), body, _headers(client, by, body))
    if session.output.structured:
        session.output.value(event)
        return
    session.output.text(f"event {event['id']} of {event['source']}: {result}")


def _extensions(sequence: str) -> dict[str, str]:
    """`TRACEPARENT` in the environment is the trace that the command runs in, as OpenTelemetry's tools set it."""
    order = EventSequence.of(sequence)
    trace = os.environ.get("TRACEPARENT", "")
    given = {"sequence": order.value, "sequencetype": order.type, "traceparent": trace}
    return {name: value for name, value in given.items() if value}


def _headers(client: Client, by: EventSource, body: bytes) -> dict[str, str]:
    name = by.auth.secret if isinstance(by.auth, HmacAuth) else ""
    source = shlex.quote(by.source)
    try:
        keys = keys_of(client.get(SECRET, name, by.namespace))
    except NotFound:
        keys = ()
    if not keys:
        raise CommandError(
            f"EventSource {by.name} has no key in the Secret {name}: `knodel events allow {source}` makes one"
        )
    try:
        signed = sign(keys[0], f"msg_{uuid.uuid4().hex}", datetime.now(UTC), body)
    except ValueError as error:
        raise CommandError(
            f"the Secret {name} holds no key ({error}): `knodel events allow {source} --rotate` makes another"
        ) from error
    return {"Content-Type": STRUCTURED, **signed}


def _event_source(client: Client, namespace: str, source: str) -> EventSource:
    """The EventSource by whose key is signed: the one for `source`, else the only one. Raises UsageError."""
    found = [_read(one) for one in client.list(EVENT_SOURCE, namespace)["items"]]
    signing = sorted((one for one in found if one and _is_signed(one)), key=lambda one: one.rank)
    fitting = [one for one in signing if not source or one.matches(source)]
    if not fitting:
        raise UsageError(
            f"no EventSource of namespace {namespace} lets {source or 'anybody'} send by a key: "
            "`knodel events allow SOURCE --models GLOB --storage-prefix PREFIX` makes one"
        )
    if not source and len(fitting) > 1:
        raise UsageError(f"whose event is it? give --source: {', '.join(one.source for one in fitting)}")
    return fitting[0]


def _is_signed(source: EventSource) -> bool:
    """Whether its senders sign as we do; MLflow's way is its own."""
    is_foreign = source.mapping is not None and source.mapping.preset == MLFLOW
    return isinstance(source.auth, HmacAuth) and not is_foreign


def _read(obj: Object) -> EventSource | None:
    from clusters.base.errors import Invalid

    try:
        return read_event_source(obj)
    except Invalid:
        return None


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
            raise UsageError("what ended? give MODEL and --uri, or the event's data with -d")
        return {name: value for name, value in fields.items() if value is not None}
    given = [name for name, value in fields.items() if value is not None and name != "namespace"]
    if given:
        raise UsageError(f"-d says all of the data: leave {', '.join(given)} out")
    return parse_data(read_data(named["data"]))


def _metrics(given: Sequence[str]) -> dict[str, float]:
    found = {}
    for text in given:
        name, _, number = text.partition("=")
        try:
            found[name] = float(number)
        except ValueError:
            raise UsageError(f"--metric {text}: write it as NAME=NUMBER") from None
    return found


def _post(webhook: Webhook, body: bytes, headers: dict[str, str]) -> str:
    given = {**webhook.headers, **headers}
    with exchange(webhook.endpoint, "POST", webhook.path, body=body, headers=given, timeout=TIMEOUT) as answer:
        content = answer.body()
    if answer.status >= 300:
        raise _failure(answer, content)
    return answer.headers.get(RESULT) or "taken"


def _failure(answer: Answer, content: bytes) -> CommandError:
    try:
        known: Any = json.loads(content)
        reason = str(known.get("error") or known.get("message"))
        if known.get("kind") == "Status":
            return CommandError(f"the API server does not let you through to the webhook ({reason}): give --url")
    except (ValueError, AttributeError, RecursionError):
        reason = content[:200].decode("utf-8", "replace")
    retry = answer.retry_after()
    again = "" if retry is None else f" (try again in {retry:.0f} s)"
    message = f"the webhook answered {answer.status}: {reason}{again}"
    return UsageError(message) if answer.status in (400, 403, 413, 415) else CommandError(message)
