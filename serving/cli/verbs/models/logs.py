"""`knodel logs`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import click

from clusters.base.objects import LABEL_REVISION, MODEL, POD, REVISION, Object, name_of
from serving.cli.base.errors import CommandError, NoSuchThing, UsageError
from serving.cli.base.output import clean
from serving.cli.client.client import Client
from serving.cli.client.replicas import container_of, not_started, status_of
from serving.cli.context import Session, verb
from serving.cli.names import model_name, revisions
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
@click.option("-f", "--follow", is_flag=True, help="Print new lines as they arrive, of new replicas too.")
@click.option("--tail", type=click.IntRange(min=0), help="Number of lines to print from the end of each log.")
@click.option(
    "--revision", metavar="REVISION|LABEL", default="", shell_complete=revisions,
    help="Print only the logs of this version.",
)  # fmt: skip
@click.option("-p", "--previous", is_flag=True, help="Print the log of the run before a container was restarted.")
def command(session: Session, name: str, follow: bool, tail: int | None, revision: str, previous: bool) -> None:
    """Print the logs of the replicas of the model NAME.

    Without a replica, the logs of those that ended in the last day are printed; a cluster keeps none of them.
    """
    if follow and previous:
        raise UsageError("--previous prints a log that has ended: leave --follow out")
    client = session.client()
    model, selector, chosen = client.get(MODEL, name, session.namespace), f"{LABEL_MODEL}={name}", [""]
    if revision:
        chosen = revisions_named(revision, model, client.list(REVISION, session.namespace, selector)["items"])
        selector += f",{LABEL_REVISION} in ({','.join(chosen)})"
    if follow:
        from serving.cli.verbs.models.log_follower import LogFollower  # threads, of which the other roads have no need

        write, note = session.output.raw, _note
        LogFollower(client, session.namespace, name, selector, tail=tail, write=write, note=note).run()
        return
    pods = client.list(POD, session.namespace, selector)["items"]
    if not pods:
        _print_ended(session, name, chosen, tail)
        return
    query = {"previous": "true"} if previous else {}
    if tail is not None:
        query["tailLines"] = str(tail)
    pods = _restarted(name, pods) if previous else _with_log(name, pods)
    for pod in pods:
        _print(session, client, pod, query, prefixed=len(pods) > 1)


def _print_ended(session: Session, name: str, chosen: Sequence[str], tail: int | None) -> None:
    """Print the logs of replicas of the chosen revisions ("": of all) that are gone.

    Raises NoSuchThing when none is kept.
    """
    logs: list[EndedLog] = []
    if session.kube is None:
        from clusters.embedded.kubelet.pod_logs import ended_logs, last_lines  # of no use on Kubernetes

        for revision in chosen:
            labels = {LABEL_MODEL: name} | ({LABEL_REVISION: revision} if revision else {})
            logs += ended_logs(session.state, session.namespace, labels)
    if not logs:
        raise NoSuchThing(f"model {name} has no replica now: `knodel explain {name}` says why, a request starts one")
    _note(f"model {name} has no replica now: these are the logs of {len(logs)} that ended in the last day")
    for log in logs:
        prefix = f"[{log.pod}] ".encode() if len(logs) > 1 else b""
        for line in last_lines(log.path, tail).splitlines(keepends=True):
            session.output.raw(prefix + line)


def _note(text: str) -> None:
    click.echo(clean(text), err=True)


def _print(session: Session, client: Client, pod: Object, query: dict[str, str], prefixed: bool) -> None:
    prefix = f"[{name_of(pod)}] ".encode() if prefixed else b""
    for line in _lines(session, client, pod, query):
        session.output.raw(prefix + line)


def _lines(session: Session, client: Client, pod: Object, query: Mapping[str, str]) -> Iterator[bytes]:
    return client.stream(client.log_path(session.namespace, name_of(pod)), {**query, "container": container_of(pod)})


def _with_log(model: str, pods: list[Object]) -> list[Object]:
    """The Pods whose container has ever run; the others are told on stderr. Raises CommandError when none has."""
    waiting = {name_of(pod): reason for pod in pods if (reason := not_started(pod))}
    if len(waiting) == len(pods):
        raise CommandError(f"no replica of model {model} has started: " + "; ".join(waiting.values()))
    for reason in waiting.values():
        _note(reason)
    return [pod for pod in pods if name_of(pod) not in waiting]


def _restarted(model: str, pods: list[Object]) -> list[Object]:
    """Return the Pods whose container was restarted. Raises NoSuchThing when there is none."""
    found = [pod for pod in pods if status_of(pod).get("restartCount")]
    if not found:
        raise NoSuchThing(f"no container of {model} was restarted: `knodel logs {model}` prints the logs of this run")
    return found
