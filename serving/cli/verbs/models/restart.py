"""`knodel restart`."""

from __future__ import annotations

import click

from autoscaler.warmpool.claims.pods import is_active
from clusters.base.objects import LABEL_REVISION, MODEL, POD, POD_AUTOSCALER, Object, condition_of, labels_of, name_of
from serving.cli.context import Session, parse_timeout, timeout_option, verb
from serving.cli.names import model_name
from serving.client.api import ApiCalls
from serving.client.client import Client
from serving.client.effects import Call, Tell, now, sleep
from serving.client.errors import ClientError, TimedOut, Unreachable
from serving.client.models.changes import change_model
from serving.client.models.waiting import Outage
from serving.client.replicas import replica_problems
from serving.types.annotations import ANNOTATION_RESTART, LABEL_MODEL

INITIALIZED = "ScaleTargetInitialized"
"""Condition of a PodAutoscaler: its revision was ready once."""
POLL = 0.2  # s between two readings of the replicas


@verb(
    "restart",
    examples=[
        ("Replace the replicas of a model, for example after a Secret has changed", "knodel restart iris"),
        ("Do not wait for the new replicas", "knodel restart iris --no-wait"),
    ],
)
@model_name()
@click.option("--wait/--no-wait", default=True, show_default=True, help="Wait until all replicas are replaced.")
@timeout_option("600s")
def command(session: Session, name: str, wait: bool, timeout: str) -> None:
    """Replace the replicas of the model NAME by new ones of the same versions, one after another.

    A replica ends when its successor is ready, so no request is refused. Versions, digests, traffic and a rollout stay
    as they are.
    """
    seconds = parse_timeout(timeout)
    client = session.client(seconds)
    model = client.get(MODEL, name, session.namespace)
    pods = _replicas_to_restart(session, client, name)
    if pods:
        patch = {"metadata": {"annotations": {ANNOTATION_RESTART: ",".join(sorted(map(name_of, pods)))}}}
        model = client.call(change_model, name, session.namespace, lambda _: patch)
        if wait:
            client.call(_wait_until_replaced, name, session.namespace, {name_of(pod) for pod in pods}, seconds)
            model = client.get(MODEL, name, session.namespace)
    if session.output.structured:
        session.output.value(model)
        return
    if not pods:
        session.output.text(f"model {name} has no replicas, so there is nothing to restart")
        return
    counts: dict[str, int] = {}
    for pod in pods:
        revision = labels_of(pod).get(LABEL_REVISION, "")
        counts[revision] = counts.get(revision, 0) + 1
    shown = ", ".join(f"{count} of {revision}" for revision, count in sorted(counts.items()))
    state = "were replaced" if wait else f"are being replaced: `knodel describe {name}` shows them"
    session.output.text(f"the replicas of model {name} ({shown}) {state}")


def _replicas_to_restart(session: Session, client: Client, name: str) -> list[Object]:
    """Return the Pods of versions that were ready once; the cluster itself restarts those of the others.

    Raises ClientError if no version was ever ready.
    """
    selector = f"{LABEL_MODEL}={name}"
    pods = [pod for pod in client.list(POD, session.namespace, selector)["items"] if is_active(pod)]
    autoscalers = client.list(POD_AUTOSCALER, session.namespace, selector)["items"]
    ready = {
        labels_of(one).get(LABEL_REVISION, name_of(one))
        for one in autoscalers
        if (condition_of(one, INITIALIZED) or {}).get("status") == "True"
    }
    found = [pod for pod in pods if labels_of(pod).get(LABEL_REVISION) in ready]
    others = sorted({labels_of(pod).get(LABEL_REVISION, "") for pod in pods if pod not in found})
    if others:
        problem = f"{', '.join(others)} has never been ready, so its replicas restart by themselves"
        if not found:
            raise ClientError(f"{problem}: `knodel describe {name}` shows the cause")
        session.output.warn(f"{problem}: only those of other versions are replaced")
    return found


def _wait_until_replaced(api: ApiCalls, name: str, namespace: str, old: set[str], seconds: float) -> Call[None]:
    """Wait until no Pod of `old` is left. Raises TimedOut with the reasons, Unreachable."""
    deadline, outage = (yield from now()) + seconds, Outage(api.server.restart_window)
    while True:
        try:
            pods = (yield from api.list(POD, namespace, f"{LABEL_MODEL}={name}"))["items"]
        except Unreachable as error:
            yield from outage.pause(error, deadline)
            continue
        outage.reset()
        left = [name_of(pod) for pod in pods if is_active(pod) and name_of(pod) in old]
        if not left:
            return
        if (yield from now()) > deadline:
            problems = yield from replica_problems(api, name, namespace)
            reasons = "; ".join([f"{len(left)} of {len(old)} are left", *problems])
            raise TimedOut(
                f"the replicas of model {name} were not replaced within {seconds:g} s: {reasons}; the restart continues"
            )
        yield Tell(f"{name}: {len(old) - len(left)} of {len(old)} replicas replaced")
        yield from sleep(POLL)
