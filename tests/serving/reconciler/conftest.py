"""The reconciler on a real embedded cluster with the embedded Knative."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from autoscaler.types import LOADED_ANNOTATION
from clusters.base.api import Cluster
from clusters.base.clock import Clock, SystemClock
from clusters.base.objects import EVENT, INGRESS, MODEL, POD_AUTOSCALER, ROUTE, Object, condition_of
from clusters.embedded.cluster import EmbeddedCluster
from clusters.embedded.knative import KnativeServing
from clusters.runtime.informer import Informers
from clusters.runtime.recorder import Recorder
from serving.reconciler.controller import COMPONENT, ModelController
from serving.reconciler.flags import AllOn, Flags
from serving.reconciler.rollout.judging.observer_port import NoObserver, Observer
from serving.types.settings.settings import Settings
from serving.types.validation import validate_model
from tests.clusters.knative.stage import NAMESPACE, Stage, splits
from tests.serving.models import model_object
from tests.support.clusters import embedded_cluster
from tests.support.knative_webhook.validation import VALIDATORS
from tests.support.loops import at_work
from tests.support.wait import eventually

USER = "tester"
DIGEST = "sha256:" + "0" * 64


class ModelStage(Stage):
    """An embedded cluster on which tests deploy Models and play the other controllers."""

    async def autoscaler_reports(
        self, revision: str, ready: Object, *, initialized: bool = True, scale: int = 1
    ) -> None:
        """Play the autoscaler, which also records the digest of the first replica."""
        await super().autoscaler_reports(revision, ready, initialized=initialized, scale=scale)
        if scale:
            await self.loaded(revision, DIGEST)

    async def loaded(self, revision: str, digest: str) -> None:
        """Play the autoscaler: record the digest that a revision's first replica loaded."""
        patch = {"metadata": {"annotations": {LOADED_ANNOTATION: digest}}}
        await self.cluster.patch(POD_AUTOSCALER, revision, patch, NAMESPACE, manager="autoscaler")

    async def deploy(self, obj: Object) -> Object:
        """Apply a Model as a user."""
        return await self.cluster.apply(MODEL, obj, manager=USER, force=True)

    async def edit(self, patch: Object, name: str = "magika") -> Object:
        """Patch a Model as a user."""
        return await self.cluster.patch(MODEL, name, patch, NAMESPACE, manager=USER)

    async def model(self, name: str = "magika") -> Object:
        """The Model."""
        return await self.get(MODEL, name)

    async def model_is(self, status: str, *, name: str = "magika", **more: Any) -> Object:
        """The Model, once Ready has this status for its present generation; `more` are parts of the condition."""

        def check(obj: Object) -> bool:
            found = condition_of(obj, "Ready") or {}
            observed = (obj.get("status") or {}).get("observedGeneration") == obj["metadata"]["generation"]
            return observed and found.get("status") == status and more.items() <= found.items()

        return await self.becomes(MODEL, name, check)

    async def traffic_is(self, expected: dict[str, int], name: str = "magika", entries: int = 0) -> Object:
        """Return the Model once its status satisfies the condition; play the data plane until then."""

        async def holds() -> bool:
            ingress = await self.find_ingress(name)
            if ingress is not None:
                await self.ingress_is_ready(name)
            status = (await self.model(name)).get("status") or {}
            found: dict[str, int] = {}
            for entry in status.get("traffic") or ():
                found[entry["revision"]] = found.get(entry["revision"], 0) + entry["percent"]
            found = {revision: percent for revision, percent in found.items() if percent}
            assert found == expected, status.get("traffic")
            assert len(status["traffic"]) >= entries
            return True

        await eventually(holds)
        return await self.model(name)

    async def find_ingress(self, name: str) -> Object | None:
        """The Ingress, if there is one."""
        return await self.find(INGRESS, name)

    async def host_gets(self, name: str = "magika") -> dict[str, int]:
        """Return the rules of the Ingress for the model's host."""
        ingress = await self.find_ingress(name)
        return splits(ingress, f"{name}.{NAMESPACE}.localhost") if ingress is not None else {}

    async def comes_up(self, *revisions: str) -> None:
        """Play Deployment controller, kubelet and autoscaler: make these revisions ready."""
        for revision in revisions:
            await self.revision_comes_up(revision)

    async def history(self, name: str = "magika") -> list[tuple[str, str, str]]:
        """(revision, outcome, by) of each line."""
        lines = (await self.model(name))["status"]["history"]
        return [(line["revision"], line.get("outcome", ""), line["cause"]["by"]) for line in lines]

    async def becomes_history(self, expected: list[tuple[str, str, str]], name: str = "magika") -> None:
        """Wait until the history has these entries."""

        async def holds() -> bool:
            found = await self.history(name)
            assert found == expected, found
            return True

        await eventually(holds)

    async def routed(self) -> Sequence[Object]:
        """The Route's targets."""
        return list((await self.get(ROUTE, "magika"))["spec"]["traffic"])

    async def tells_of(self, *reasons: str) -> None:
        """Wait until there are Events with these reasons about Models."""

        async def holds() -> bool:
            events = (await self.cluster.list(EVENT)).items
            found = {event["reason"] for event in events if event["involvedObject"]["kind"] == "Model"}
            assert found >= set(reasons), found
            return True

        await eventually(holds)


@contextlib.asynccontextmanager
async def platform(
    cluster: EmbeddedCluster,
    flags: Flags | None = None,
    settings: Settings | None = None,
    observer: Observer | None = None,
    model_clock: Clock | None = None,
    seen: Cluster | None = None,
) -> AsyncIterator[ModelStage]:
    """Run the embedded Knative and the reconciler on `cluster`; the reconciler writes through `seen`."""
    clock = SystemClock()
    informers = Informers(cluster)
    serving = KnativeServing(
        cluster,
        informers,
        clock=clock,
        domain=lambda namespace, name: f"{name}.{namespace}.localhost",
        url=lambda host: f"http://{host}:8080",
    )
    controller = ModelController(
        seen or cluster,
        informers,
        settings=settings or Settings(),
        clock=model_clock or clock,
        recorder=Recorder(cluster, COMPONENT, clock),
        flags=flags or AllOn(),
        observer=observer or NoObserver(),
    )
    async with at_work(informers.run(), serving.run(), controller.run()):
        yield ModelStage(cluster)


@pytest.fixture
async def guarded(tmp_path: Path) -> AsyncIterator[EmbeddedCluster]:
    """A cluster with the admission checks of Knative and Knodel."""
    validators = {**VALIDATORS, MODEL: validate_model}
    async with embedded_cluster(tmp_path / "cluster.db", validators=validators) as running:
        yield running


@pytest.fixture
async def stage(guarded: EmbeddedCluster) -> AsyncIterator[ModelStage]:
    """A stage whose controllers run."""
    async with platform(guarded) as stage:
        yield stage


@pytest.fixture
async def serving(stage: ModelStage) -> ModelStage:
    """A stage on which version 1 of `magika` has all the traffic."""
    await stage.deploy(model_object(version="1"))
    await stage.comes_up("magika-00001")
    await stage.traffic_is({"magika-00001": 100})
    await stage.model_is("True")
    return stage
