"""Collect the facts of `knodel doctor` about Models, engines, stores and event sources. Read-only."""

from __future__ import annotations

import socket
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from clusters.base.errors import Forbidden, KnodelError
from clusters.base.objects import EVENT_SOURCE, MODEL, POD, Kind, Object, labels_of
from serving.cli.doctor import models as doctor
from serving.cli.doctor.examine_gpus import examine_gpus
from serving.cli.doctor.findings import Finding
from serving.client.client import Client
from serving.engines.base.registry import FORMATS, is_installed
from serving.types.annotations import LABEL_MODEL

CONNECT_TIMEOUT: Final = 3.0  # s for one connection
MAX_HOSTS: Final = 32
"""Artifact hosts to connect to, all at the same time."""


def examine_here(client: Client) -> Iterator[Finding]:
    """Run the checks for a platform on this machine, where replicas use our packages and our network."""
    models = yield from _listed(client, MODEL, None, "models")
    if models is not None:
        yield doctor.check_models(models)
        yield doctor.check_replicas(models)
        if any((one.get("spec") or {}).get("workers") for one in models):
            yield doctor.check_workers(models)
        yield doctor.check_engines(models, {one.package for one in FORMATS.values() if not is_installed(one)})
        users = doctor.artifact_hosts(models)
        hosts = list(users)[:MAX_HOSTS]
        faults: dict[tuple[str, int], str] = {}
        if hosts:
            with ThreadPoolExecutor(len(hosts)) as threads:
                faults = {host: why for host, why in zip(hosts, threads.map(_fault, hosts), strict=True) if why}
        yield doctor.check_stores(users, faults)
    yield from _sources(client, None)


def examine_there(client: Client, namespace: str | None, context: str) -> Iterator[Finding]:
    """Run the checks for a namespace of a cluster, or for all, where engines and network are those of the Pods."""
    models = yield from _listed(client, MODEL, namespace, "models")
    if models is not None:
        yield doctor.check_models(models)
        yield doctor.check_replicas(models)
        if any((one.get("spec") or {}).get("workers") for one in models):
            yield doctor.check_workers(models)
        yield from examine_gpus(client, context, models)
    pods = yield from _listed(client, POD, namespace, "images")
    if pods is not None:
        yield doctor.check_images(pods if namespace else [pod for pod in pods if LABEL_MODEL in labels_of(pod)])
    yield from _sources(client, namespace)


def _sources(client: Client, namespace: str | None) -> Iterator[Finding]:
    sources = yield from _listed(client, EVENT_SOURCE, namespace, "events")
    if sources is not None:
        yield doctor.check_sources(sources)


def _listed(
    client: Client, kind: Kind, namespace: str | None, check: str
) -> Generator[Finding, None, Sequence[Object] | None]:
    """List objects; if that fails, return None and yield a finding, which is a problem unless it is forbidden."""
    try:
        found: list[Object] = client.list(kind, namespace)["items"]
    except Forbidden as error:
        yield Finding(check, True, str(error), seen=False)
    except KnodelError as error:
        what, _, remedy = str(error).rpartition(": ")
        yield Finding(check, False, what or remedy, remedy)
    else:
        return found
    return None


def _fault(address: tuple[str, int]) -> str:
    """Return why a connection fails; empty if it succeeds."""
    try:
        with socket.create_connection(address, CONNECT_TIMEOUT):
            return ""
    except UnicodeError:
        return "invalid host name"
    except OSError as error:
        return error.strerror or str(error) or error.__class__.__name__
