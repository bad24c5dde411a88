"""Models with workers: the token, and the condition of their groups."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

from clusters.base.clock import SystemClock
from clusters.base.objects import MODEL, POD, SECRET, Object, condition_of, controller_of, uid_of
from clusters.embedded.cluster import EmbeddedCluster
from clusters.runtime.informer import Informers
from clusters.runtime.recorder import Recorder
from serving.groups.states import PodGroupStates, state_patch
from serving.reconciler.controller import COMPONENT, ModelController
from serving.reconciler.flags import AllOn
from serving.types.annotations import LABEL_GROUP_ROLE
from serving.types.lifecycle import State
from serving.types.settings.settings import Settings
from serving.types.validation import validate_model
from tests.serving.groups.pods import LEADER, NAMESPACE, leader_pod
from tests.serving.models import model_object
from tests.serving.reconciler.conftest import ModelStage
from tests.support.clusters import embedded_cluster
from tests.support.loops import at_work

GROUP = model_object("large", modelFormat="vllm", workers={"count": 2})
WAITING = State("False", "Unschedulable", "1 of 2 workers are ready: w2 is waiting: Unschedulable: 0/1 nodes")


@contextlib.asynccontextmanager
async def on_kubernetes(path: Path) -> AsyncIterator[ModelStage]:
    """The reconciler with the states of Pods."""
    async with embedded_cluster(path / "cluster.db", validators={MODEL: validate_model}) as cluster:
        clock = SystemClock()
        informers = Informers(cluster, clock, selectors={POD: LABEL_GROUP_ROLE})
        controller = ModelController(
            cluster, informers, settings=Settings(), clock=clock, recorder=Recorder(cluster, COMPONENT, clock),
            flags=AllOn(), groups=PodGroupStates(informers),
        )  # fmt: skip
        async with at_work(informers.run(), controller.run()):
            yield ModelStage(cluster)


def workers_ready(model: Object) -> Object:
    return condition_of(model, "WorkersReady") or {}


async def test_the_token_is_there_before_the_objects_and_goes_with_the_model(stage: ModelStage) -> None:
    await stage.deploy(GROUP)
    model = await stage.becomes(MODEL, "large", lambda one: bool(one.get("status")))
    secret = await stage.get(SECRET, f"knodel-group-{uid_of(model)}")
    assert (controller_of(secret) or {})["uid"] == uid_of(model)
    assert len(secret["data"]["token"]) >= 64


async def test_on_one_machine_a_condition_says_where_the_workers_are(stage: ModelStage) -> None:
    await stage.deploy(GROUP)
    model = await stage.becomes(MODEL, "large", lambda one: bool(workers_ready(one)))
    assert workers_ready(model)["reason"] == "OneMachine"
    assert workers_ready(model)["message"].startswith("one machine: ")


async def test_a_model_without_workers_has_no_such_condition(serving: ModelStage) -> None:
    assert not workers_ready(await serving.model())


async def test_the_worst_group_is_in_the_condition_while_it_is_there(tmp_path: Path) -> None:
    async with on_kubernetes(tmp_path) as stage:
        await stage.deploy(GROUP)
        cluster: EmbeddedCluster = stage.cluster
        for name in (LEADER, f"{LEADER}2"):
            await cluster.create(POD, leader_pod(name=name), manager="test")
        await cluster.patch(POD, LEADER, state_patch(State("True", "", "2 of 2")), NAMESPACE, manager="test")
        await cluster.patch(POD, f"{LEADER}2", state_patch(WAITING), NAMESPACE, manager="test")

        model = await stage.becomes(MODEL, "large", lambda one: workers_ready(one).get("status") == "False")
        assert workers_ready(model)["reason"] == "Unschedulable"
        assert workers_ready(model)["message"] == f"{LEADER}2: {WAITING.message}"

        await cluster.delete(POD, f"{LEADER}2", NAMESPACE, grace_period=0)
        await stage.becomes(MODEL, "large", lambda one: workers_ready(one).get("status") == "True")
        await cluster.delete(POD, LEADER, NAMESPACE, grace_period=0)
        await stage.becomes(MODEL, "large", lambda one: not workers_ready(one))
