"""`knodel logs`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from clusters.base.objects import LABEL_REVISION, MODEL, POD, REVISION, Object, name_of
from serving.cli.base.output import clean
from serving.cli.context import Session, verb
from serving.cli.names import model_name, revisions
from serving.client.errors import ClientError, DoesNotExist, UsageError
from serving.client.replicas import container_of, not_started_reason, status_of
from serving.reconciler.rollout.commands import revisions_named
from serving.types.annotations import LABEL_MODEL

if TYPE_CHECKING:
    from clusters.embedded.kubelet.pod_logs import EndedLog


@verb(
    "logs",
    prints=False,
    examples=[
        ("Print the last 20 lines of each replica", "knodel logs iris --tail 20"),
        ("Follow the logs of one version", "knodel logs iris -f --revision iris-00002"),
    ],
)
@model_name()
@click.option("-f", "--follow", is_flag=True, help="Print new lines as they arrive, also of new replicas.")
@click.option("--tail", type=click.IntRange(min=0), help="Number of lines to print from the end of each log.")
@click.option(
    "--revision", metavar="REVISION|LABEL", default="", shell_complete=revisions,
    help="Print only the logs of this version.",
)  # fmt: skip
@click.option("-p", "--previous", is_flag=True, help="Print the logs of containers before their last restart.")
def command(session: Session, name: str, follow: bool, tail: int | None, revision: str, previous: bool) -> None:
    """Print the logs of the replicas of the model NAME.

    If the model has no replica, print the logs of replicas that ended in the last day; a cluster does not keep them.
    """
    if follow and previous:
        raise UsageError("--previous prints logs that have ended: omit --follow")
    client = session.client()
    model, selector, chosen = client.get(MODEL, name, session.namespace), f"{LABEL_MODEL}={name}", [""]
    if revision:
        chosen = revisions_named(revision, model, client.list(REVISION, session.namespace, selector)["items"])
        selector += f",{LABEL_REVISION} in ({','.join(chosen)})"
    if follow:
        from serving.cli.verbs.models.log_follower import LogFollower  # only --follow needs its threads

        LogFollower(client, session.namespace, name, selector, tail=tail, write=session.output.raw, warn=_warn).run()
        return
    pods = client.list(POD, session.namespace, selector)["items"]
    if not pods:
        _print_ended(session, name, chosen, tail)
        return
    query = {"previous": "true"} if previous else {}
    if tail is not None:
        query["tailLines"] = str(tail)
    if previous:
        pods = [pod for pod in pods if status_of(pod).get("restartCount")]
        if not pods:
            raise DoesNotExist(f"no container of {name} was restarted: `knodel logs {name}` prints the current logs")
    else:
        pods = _with_log(name, pods)
    for pod in pods:
        prefix = f"[{name_of(pod)}] ".encode() if len(pods) > 1 else b""
        path = client.log_path(session.namespace, name_of(pod))
        for line in client.stream(path, {**query, "container": container_of(pod)}):
            session.output.raw(prefix + line)


def _print_ended(session: Session, name: str, chosen: Sequence[str], tail: int | None) -> None:
    """Print the logs of ended replicas of the chosen revisions ("": of all).

    Raises DoesNotExist when none is stored.
    """
    logs: list[EndedLog] = []
    if session.kube is None:
        from clusters.embedded.kubelet.pod_logs import ended_logs, last_lines  # only for a local platform

        for revision in chosen:
            labels = {LABEL_MODEL: name} | ({LABEL_REVISION: revision} if revision else {})
            logs += ended_logs(session.state, session.namespace, labels)
    if not logs:
        raise DoesNotExist(f"model {name} has no replica now: `knodel explain {name}` shows why, a request starts one")
    _warn(f"model {name} has no replica now: these are the logs of {len(logs)} that ended in the last day")
    for log in logs:
        prefix = f"[{log.pod}] ".encode() if len(logs) > 1 else b""
        for line in last_lines(log.path, tail).splitlines(keepends=True):
            session.output.raw(prefix + line)


def _warn(text: str) -> None:
    click.echo(clean(text), err=True)


def _with_log(model: str, pods: list[Object]) -> list[Object]:
    """Return the Pods whose container has started, and warn of the others. Raises ClientError when none has."""
    waiting = {name_of(pod): reason for pod in pods if (reason := not_started_reason(pod))}
    if len(waiting) == len(pods):
        raise ClientError(f"no replica of model {model} has started: " + "; ".join(waiting.values()))
    for reason in waiting.values():
        _warn(reason)
    return [pod for pod in pods if name_of(pod) not in waiting]
