"""`knodel logs`."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator

import click

from clusters.errors import KnodelError
from clusters.objects import LABEL_REVISION, MODEL, POD, Object, name_of
from serving.apis.annotations import LABEL_MODEL
from serving.cli.client import Client
from serving.cli.context import Session, verb
from serving.cli.errors import CommandError, NoSuchThing
from serving.cli.names import model_name, revisions
from serving.cli.output import clean
from serving.cli.replicas import container_of, status_of

PENDING = "Pending"


@verb(
    "logs",
    prints=False,
    examples=[
        ("Print the last 20 lines of each replica", "knodel logs iris --tail 20"),
        ("Follow the logs of one version", "knodel logs iris -f --revision iris-00002"),
    ],
)
@model_name()
@click.option("-f", "--follow", is_flag=True, help="Print new lines as they arrive.")
@click.option("--tail", type=click.IntRange(min=0), help="Number of lines to print from the end of each log.")
@click.option("--revision", default="", shell_complete=revisions, help="Print only the logs of this revision.")
@click.option("-p", "--previous", is_flag=True, help="Of a container that was restarted on a cluster: its run before.")
def command(session: Session, name: str, follow: bool, tail: int | None, revision: str, previous: bool) -> None:
    """Print the logs of the replicas of the model NAME."""
    client = session.client()
    client.get(MODEL, name, session.namespace)
    selector = f"{LABEL_MODEL}={name}" + (f",{LABEL_REVISION}={revision}" if revision else "")
    pods = client.list(POD, session.namespace, selector)["items"]
    if not pods:
        raise NoSuchThing(f"model {name} has no replica now: `knodel explain {name}` says why, a request starts one")
    query = {key: "true" for key, wanted in (("follow", follow), ("previous", previous)) if wanted}
    if tail is not None:
        query["tailLines"] = str(tail)
    pods = _with_log(name, pods)
    if follow and len(pods) > 1:
        _follow_all(session, client, pods, query)
        return
    for pod in pods:
        _print(session, client, pod, query, prefixed=len(pods) > 1)


def _print(session: Session, client: Client, pod: Object, query: dict[str, str], prefixed: bool) -> None:
    prefix = f"[{name_of(pod)}] ".encode() if prefixed else b""
    for line in _lines(session, client, pod, query):
        session.output.raw(prefix + line)


def _lines(session: Session, client: Client, pod: Object, query: dict[str, str]) -> Iterator[bytes]:
    return client.stream(client.log_path(session.namespace, name_of(pod)), {**query, "container": container_of(pod)})


def _with_log(model: str, pods: list[Object]) -> list[Object]:
    """The Pods whose container has ever run; the others are told on stderr. Raises CommandError when none has."""
    waiting = {name_of(pod): reason for pod in pods if (reason := _not_started(pod))}
    if len(waiting) == len(pods):
        raise CommandError(f"no replica of model {model} has started: " + "; ".join(waiting.values()))
    for reason in waiting.values():
        click.echo(clean(reason), err=True)
    return [pod for pod in pods if name_of(pod) not in waiting]


def _not_started(pod: Object) -> str:
    """Why the container has no log, empty when it has one: it runs, or it ran before it was restarted."""
    status, found = pod.get("status") or {}, status_of(pod)
    waiting = (found.get("state") or {}).get("waiting")
    if found.get("restartCount") or (waiting is None and (found or status.get("phase") != PENDING)):
        return ""
    unmet: Object = next((one for one in status.get("conditions") or () if one.get("status") == "False"), {})
    reason = waiting or unmet  # a Pod that no node has yet has conditions only
    words = [str(reason[part]) for part in ("reason", "message") if reason.get(part)]
    return f"replica {name_of(pod)} has not started: {': '.join(words) or 'no reason given yet'}"


def _follow_all(session: Session, client: Client, pods: list[Object], query: dict[str, str]) -> None:
    """Lines of several replicas as they come: one reader thread each, one writer."""
    lines: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()

    def read(pod: Object) -> None:
        try:
            for line in _lines(session, client, pod, query):
                lines.put(f"[{name_of(pod)}] ".encode() + line)
        except KnodelError as error:
            lines.put(f"[{name_of(pod)}] the log ended: {error}\n".encode())
        lines.put(None)

    for pod in pods:
        threading.Thread(target=read, args=(pod,), daemon=True).start()
    open_logs = len(pods)
    while open_logs:
        line = lines.get()
        if line is None:
            open_logs -= 1
        else:
            session.output.raw(line)
