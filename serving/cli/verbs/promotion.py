"""`knodel promote --to`: deploy the version that serves in one environment in another."""

from __future__ import annotations

from datetime import UTC, datetime

import click

from clusters.base.objects import name_of
from serving.cli.base.output import Output
from serving.cli.context import Session, parse_timeout
from serving.cli.texts import rollout_summary
from serving.client.environments import environments_file, read_environments
from serving.client.errors import UsageError
from serving.client.models.local_files import short_digest
from serving.client.models.promotion import Place, Promoted, ServingVersion, promote_to, serving_version


def promote_to_environment(session: Session, name: str, to: str, rollout: bool, wait: bool, timeout: str) -> None:
    """Promote the model `name` of the session to the environment `to`, and print the result. Raises ClientError."""
    seconds = parse_timeout(timeout)
    environment = read_environments(environments_file()).find(to)
    ref, namespace = environment.open()
    source, target = Place(_name_of(session), session.ref, session.namespace), Place(to, ref, namespace)
    if (source.ref, source.namespace) == (target.ref, target.namespace):
        raise UsageError(f"{to} is the environment of the model itself ({environment.where}): give another one")
    found = session.client(seconds).call(serving_version, name, session.namespace)
    options = {"--env": to}
    there = Session(ref.state, namespace, Output(session.output.format, options), ref.kube, True, to)
    context = click.get_current_context().ensure_object(dict)
    context.clear()
    context.update(options)  # commands that messages advise from here on are about the target
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    client = there.client(seconds)
    done = client.call(
        promote_to, name, source, found, target, rollout=rollout, wait=seconds if wait else None, now=now
    )
    if session.output.structured:
        session.output.value(done.model)
        return
    for line in _lines(source, found, to, done):
        there.output.text(line)


def _name_of(session: Session) -> str:
    """Return the name of the source for the history: that of its environment, else the context or this machine."""
    return session.env or (session.kube.name if session.kube else "this machine")


def _lines(source: Place, found: ServingVersion, to: str, done: Promoted) -> list[str]:
    entry, name = found.entry, name_of(done.model)
    label = f"{entry.version}, " if entry.version else ""
    version = f"version {entry.revision} ({label}digest {short_digest(entry.digest)}) of {source.name}"
    if done.unchanged:
        return [f"model {name} in {to} has the bytes of {version} already: nothing was changed"]
    newest = (done.model.get("status") or {}).get("latestCreatedRevision", "")
    words = [f"model {name}: {version} is {newest or 'stored'} in {to}", rollout_summary(done.model)]
    return [", ".join(filter(None, words)), *(f"  {line}" for line in done.changes)]
