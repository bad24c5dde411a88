"""`knodel logs`."""

from __future__ import annotations

import queue
import threading

import click

from clusters.errors import KnodelError
from clusters.objects import MODEL, POD, Object, name_of
from serving.apis.annotations import LABEL_MODEL
from serving.cli.client import Client
from serving.cli.context import Session, verb
from serving.cli.errors import NoSuchThing
from serving.cli.names import model_name


@verb("logs")
@model_name()
@click.option("-f", "--follow", is_flag=True, help="Go on as new lines come.")
@click.option("--tail", type=click.IntRange(min=0), help="Only the last lines of each replica.")
@click.option("--revision", default="", help="Only the replicas of this version.")
def command(session: Session, name: str, follow: bool, tail: int | None, revision: str) -> None:
    """Print the logs of the replicas of the model NAME."""
    client = session.client()
    client.get(MODEL, name, session.namespace)
    selector = f"{LABEL_MODEL}={name}" + (f",serving.knative.dev/revision={revision}" if revision else "")
    pods = client.list(POD, session.namespace, selector)["items"]
    if not pods:
        raise NoSuchThing(f"model {name} has no replica now: `knodel explain {name}` says why, a request starts one")
    query = {"follow": "1"} if follow else {}
    if tail is not None:
        query["tailLines"] = str(tail)
    if follow and len(pods) > 1:
        _follow_all(session, client, pods, query)
        return
    for pod in pods:
        _print(session, client, pod, query, prefixed=len(pods) > 1)


def _print(session: Session, client: Client, pod: Object, query: dict[str, str], prefixed: bool) -> None:
    prefix = f"[{name_of(pod)}] ".encode() if prefixed else b""
    for line in client.stream(client.log_path(session.namespace, name_of(pod)), query):
        session.output.raw(prefix + line)


def _follow_all(session: Session, client: Client, pods: list[Object], query: dict[str, str]) -> None:
    """Lines of several replicas as they come: one reader thread each, one writer."""
    lines: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()

    def read(pod: Object) -> None:
        try:
            for line in client.stream(client.log_path(session.namespace, name_of(pod)), query):
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
