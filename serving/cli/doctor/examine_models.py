"""What `knodel doctor` looks at of what was deployed, here or on a cluster. Nothing here changes anything."""

from __future__ import annotations

import importlib.util
import socket
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from clusters.base.errors import Forbidden, KnodelError
from clusters.base.objects import EVENT_SOURCE, MODEL, POD, Kind, Object
from serving.cli.client.client import Client
from serving.cli.doctor import models as doctor
from serving.cli.doctor.findings import Finding
from serving.engines.base.registry import FORMATS

PATIENCE: Final = 3.0  # s for one connection
PLACES: Final = 32
"""Hosts of artifacts that are tried, all at once."""


def examine_here(client: Client) -> Iterator[Finding]:
    """Of a platform on this machine, where replicas run with our packages and in our network."""
    models = yield from _seen(client, MODEL, None, "models")
    if models is not None:
        yield doctor.judge_models(models)
        yield doctor.judge_replicas(models)
        yield doctor.judge_engines(models, _missing_packages())
        users = doctor.places(models)
        yield doctor.judge_stores(users, _unreached(list(users)[:PLACES]))
    yield from _sources(client, None)


def examine_there(client: Client, namespace: str) -> Iterator[Finding]:
    """Of a namespace on a cluster, where engines and network are those of the Pods."""
    models = yield from _seen(client, MODEL, namespace, "models")
    if models is not None:
        yield doctor.judge_models(models)
        yield doctor.judge_replicas(models)
    pods = yield from _seen(client, POD, namespace, "images")
    if pods is not None:
        yield doctor.judge_images(pods)
    yield from _sources(client, namespace)


def _sources(client: Client, namespace: str | None) -> Iterator[Finding]:
    sources = yield from _seen(client, EVENT_SOURCE, namespace, "events")
    if sources is not None:
        yield doctor.judge_sources(sources)


def _seen(
    client: Client, kind: Kind, namespace: str | None, check: str
) -> Generator[Finding, None, Sequence[Object] | None]:
    """The objects; None when they are not to be seen, which is a finding only where it is no matter of rights."""
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


def _missing_packages() -> list[str]:
    return [package for package in {one.package for one in FORMATS.values()} if not importlib.util.find_spec(package)]


def _unreached(places: Sequence[tuple[str, int]]) -> dict[tuple[str, int], str]:
    if not places:
        return {}
    with ThreadPoolExecutor(len(places)) as threads:
        return {place: why for place, why in zip(places, threads.map(_fault, places), strict=True) if why}


def _fault(place: tuple[str, int]) -> str:
    """Why nothing connects; empty when something does."""
    try:
        with socket.create_connection(place, PATIENCE):
            return ""
    except UnicodeError:
        return "no name that a host can have"
    except OSError as error:
        return error.strerror or str(error) or error.__class__.__name__
