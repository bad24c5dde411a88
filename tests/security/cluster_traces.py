"""What a Knodel on Kubernetes leaves behind or shows: objects of every kind, and of Pods logs, pages and processes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from clusters.base.errors import KnodelError
from clusters.base.objects import POD, Kind, Object, name_of, namespace_of
from clusters.net.endpoints import MANAGEMENT_PORT
from clusters.runtime.manager.options import SYSTEM_NAMESPACE
from serving.client.api import log_path
from serving.client.client import Client
from serving.client.replicas import SIDECAR
from tests.security.traces import Trace
from tests.support.containers import processes_of

PAGES: Final = (
    (SYSTEM_NAMESPACE, 9090, "metrics"),
    ("", MANAGEMENT_PORT, "metrics"), ("", MANAGEMENT_PORT, "stats"), ("", 9090, "metrics"), ("", 9091, "metrics"),
)  # fmt: skip
"""(namespace, port, path) of what tells figures; those without a namespace are of a Model's server and queue-proxy."""


def kinds_of(client: Client) -> list[Kind]:
    """Everything that the API server lists, each resource in the first version that has it."""
    groups = client.read("/apis")["groups"]
    versions = ["v1", *(one["groupVersion"] for group in groups for one in group["versions"])]
    found: dict[str, Kind] = {}
    for version in versions:
        listed = client.read(f"/apis/{version}" if "/" in version else f"/api/{version}")
        for one in listed["resources"]:
            if "list" in one["verbs"]:
                group, _, number = version.rpartition("/")
                kind = Kind(group, number, one["kind"], one["name"], namespaced=one["namespaced"])
                found.setdefault(kind.resource, kind)
    return list(found.values())


def pods_of(client: Client, namespaces: Iterable[str]) -> list[Object]:
    """All Pods there."""
    return [pod for namespace in namespaces for pod in client.list(POD, namespace)["items"]]


def logs(client: Client, pods: Iterable[Object]) -> Iterator[Trace]:
    """The logs of every container, those before its restart too; `log POD CONTAINER[ before]`."""
    for pod in pods:
        spec, path = pod["spec"], log_path(namespace_of(pod), name_of(pod))
        for container in (*spec.get("initContainers", ()), *spec["containers"]):
            for previous, said in (("false", ""), ("true", " before")):
                query = {"container": container["name"], "previous": previous}
                with suppress(KnodelError):  # it has not run yet, or runs for the first time
                    yield f"log {name_of(pod)} {container['name']}{said}", b"".join(client.stream(path, query))


def pages(client: Client, pods: Iterable[Object]) -> Iterator[Trace]:
    """What Pods tell of themselves, fetched by way of the API server; `page POD PORT PATH`."""
    for pod in pods:
        own = namespace_of(pod) if namespace_of(pod) == SYSTEM_NAMESPACE else ""
        for port, path in ((port, path) for namespace, port, path in PAGES if namespace == own):
            url = f"/api/v1/namespaces/{namespace_of(pod)}/pods/{name_of(pod)}:{port}/proxy/{path}"
            with suppress(KnodelError):  # it has not started, or has ended
                yield f"page {name_of(pod)} {port} {path}", b"".join(client.stream(url, {}))


def processes(pods: Iterable[Object]) -> Iterator[Trace]:
    """Arguments and variables of each process, where the node is this machine; `arguments POD CONTAINER`."""
    for place, pid in _pids(pods):
        for what, file in (("arguments", "cmdline"), ("variables", "environ")):
            with suppress(OSError):  # it has ended
                yield f"{what} {place}", Path(f"/proc/{pid}/{file}").read_bytes()


def core_dumpers(pods: Iterable[Object]) -> list[str]:
    """`POD CONTAINER` of each process of ours that would write its memory to a file when it crashes."""
    found = []
    for place, pid in _pids(pods):
        with suppress(OSError):
            limits = Path(f"/proc/{pid}/limits").read_text().splitlines()
            [core] = [line.split()[4] for line in limits if line.startswith("Max core file size")]
            found += [place] if core != "0" and not place.endswith(f" {SIDECAR}") else []
    return found


def _pids(pods: Iterable[Object]) -> Iterator[tuple[str, int]]:
    for pod in pods:
        for status in (pod.get("status") or {}).get("containerStatuses") or ():
            if "running" in (status.get("state") or {}):
                yield from ((f"{name_of(pod)} {status['name']}", pid) for pid in processes_of(status))
