"""A cluster behind an API server of its own, with Knative's part played, for controllers that are processes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from starlette.types import ASGIApp

from clusters.base.clock import SystemClock
from clusters.base.objects import LEASE, MODEL, SERVICE, Object, name_of
from clusters.embedded.cluster import EmbeddedCluster
from clusters.embedded.knative import KnativeServing
from clusters.runtime.informer import Informers
from serving.types.validation import validate_model
from tests.serving.reconciler.conftest import ModelStage
from tests.support.api import api_server
from tests.support.clusters import embedded_cluster
from tests.support.knative_webhook.validation import VALIDATORS
from tests.support.replicas import ReplicaProcess, replica


@dataclass
class Transcript:
    """Which version of its Model each Service was written for, write by write; the terms of leaders.

    Versions are the numbers at the ends of `storageUri`: `uri(7)` is the seventh.
    """

    written: dict[str, list[int]] = field(default_factory=dict)
    terms: list[int] = field(default_factory=list)

    def went_back(self) -> list[str]:
        """The Services over which an older wish was written, after a newer one."""
        return [name for name, versions in self.written.items() if versions != sorted(versions)]


@dataclass
class Served:
    """`stage` plays, `kubeconfig` leads to the API server, `transcript` fills by itself."""

    stage: ModelStage
    kubeconfig: Path
    transcript: Transcript

    @property
    def cluster(self) -> EmbeddedCluster:
        """The cluster itself, without a server before it."""
        return self.stage.cluster


@asynccontextmanager
async def served(
    folder: Path, *, around: Callable[[ASGIApp], ASGIApp] = lambda app: app, tls: bool = True
) -> AsyncIterator[Served]:
    """All of it, its files in `folder`, until the end of the block; options as `api_server`'s."""
    validators = {**VALIDATORS, MODEL: validate_model}
    async with embedded_cluster(folder / "cluster.db", validators=validators) as cluster:
        informers, transcript = Informers(cluster), Transcript()
        knative = KnativeServing(
            cluster,
            informers,
            clock=SystemClock(),
            domain=lambda namespace, name: f"{name}.{namespace}.localhost",
            url=lambda host: f"http://{host}",
        )
        tasks = [asyncio.create_task(part) for part in (informers.run(), knative.run(), _note(cluster, transcript))]
        try:
            async with api_server(cluster, folder, around=around, tls=tls) as kubeconfig:
                yield Served(ModelStage(cluster), kubeconfig, transcript)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


@asynccontextmanager
async def controller(
    kubeconfig: Path, name: str, options: Sequence[str] = (), **environ: str
) -> AsyncIterator[ReplicaProcess]:
    """`python -m serving.platform.main`, as a Pod called `name`."""
    arguments, pod = ["--kubeconfig", str(kubeconfig), *options], {"POD_NAME": name, "POD_UID": f"uid-of-{name}"}
    async with replica("serving.platform.main", arguments, kubeconfig.parent, name, **pod, **environ) as started:
        yield started


def uri(version: int) -> str:
    """A `storageUri` that tells versions apart."""
    return f"file:///models/v{version}"


def version_in(service: Object) -> int:
    """Which `uri` a Service has its Pods load; 0 without one."""
    arguments = service["spec"]["template"]["spec"]["containers"][0].get("args") or ()
    found = [one for one in arguments if str(one).startswith(uri(0)[:-1])]
    return int(str(found[0]).removeprefix(uri(0)[:-1])) if found else 0


async def _note(cluster: EmbeddedCluster, transcript: Transcript) -> None:
    """Write down what becomes of Services and of the Lease."""
    async with asyncio.TaskGroup() as group:
        group.create_task(_note_services(cluster, transcript))
        group.create_task(_note_terms(cluster, transcript))


async def _note_services(cluster: EmbeddedCluster, transcript: Transcript) -> None:
    async for event in cluster.watch(SERVICE, "0"):
        found = version_in(event.object)
        written = transcript.written.setdefault(name_of(event.object), [])
        if event.type != "DELETED" and found and written[-1:] != [found]:
            written.append(found)


async def _note_terms(cluster: EmbeddedCluster, transcript: Transcript) -> None:
    async for event in cluster.watch(LEASE, "0"):
        term = int((event.object.get("spec") or {}).get("leaseTransitions") or 0)
        if term not in transcript.terms:
            transcript.terms.append(term)
