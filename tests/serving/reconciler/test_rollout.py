"""Rollouts on the embedded cluster, with a stepped clock and given request counts."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from typing import Any, cast

import pytest

from autoscaler.types import AUTO, POLICY_ANNOTATION
from clusters.base.api import Cluster
from clusters.base.objects import MODEL, POD_AUTOSCALER, REVISION, Object, parse_timestamp
from clusters.embedded.cluster import EmbeddedCluster
from serving.reconciler.rollout.commands import abort, pause, promote, resume, rollback
from serving.reconciler.rollout.judging.counts import Counts
from serving.reconciler.rollout.state import RolloutState, rollout_of, seconds_between
from tests.serving.models import model_object
from tests.serving.reconciler.conftest import ModelStage, platform
from tests.serving.reconciler.mortal import Mortal
from tests.serving.reconciler.test_traffic import revisions
from tests.support.clock import SteppedClock
from tests.support.wait import eventually

AWAY = 30.0
"""s: nobody led for longer than a judge's interval and a change of leader."""
OLD, NEW, NEWER = "magika-00001", "magika-00002", "magika-00003"
GOOD = Counts(20_000, 20, {-40: 10_000, -32: 9_000, -24: 1_000})
BAD = Counts(50_000, 10_000, {-40: 20_000, -32: 19_000, -24: 1_000})
Reading = Mapping[str, Counts]


class Script:
    """An Observer: at each look every revision has answered as told, GOOD unless told otherwise."""

    def __init__(self) -> None:
        self.answers: dict[str, Counts] = {}
        self.looks = 0
        self.forgotten: list[str] = []

    async def read(self, rollout: str, namespace: str, revisions: Collection[str]) -> Reading:
        """The same at every look."""
        self.looks += 1
        return {revision: self.answers.get(revision, GOOD) for revision in revisions}

    def forget(self, rollout: str) -> None:
        """Kept for tests to see."""
        self.forgotten.append(rollout)


class RolloutStage(ModelStage):
    """A stage whose reconciler has a clock of its own."""

    clock: SteppedClock
    script: Script

    async def later(self, seconds: float) -> None:
        """So much later the reconciler looks at the Model."""
        self.clock.step(seconds)
        await self.edit({"metadata": {"labels": {"tick": str(int(self.clock.monotonic() * 1000))}}})

    async def rollout_is(self, check: Callable[[RolloutState], bool]) -> RolloutState:
        """The rollout, once it is so; the data plane is played meanwhile."""

        async def holds() -> bool:
            await self.ingress_is_ready("magika")
            state = rollout_of(await self.model())
            assert state is not None and check(state), (await self.model()).get("status", {}).get("rollout")
            return True

        await eventually(holds)
        found = rollout_of(await self.model())
        assert found is not None
        return found

    async def in_force(self, percent: int) -> RolloutState:
        """The rollout, once the gateway gives the candidate so much."""
        return await self.rollout_is(lambda state: state.percent == percent and bool(state.seen_at))

    async def ends(self, phase: str) -> RolloutState:
        """The rollout, once it is over so."""
        return await self.rollout_is(lambda state: state.phase == phase)

    async def deploys(self, number: int, **spec: Any) -> str:
        """Version `number` is deployed, and its Revision comes up."""
        await self.edit({"spec": {"storageUri": f"file:///models/v{number}", "version": str(number), **spec}})
        name = f"magika-{number:05d}"
        await self.comes_up(name)
        return name

    async def tags(self) -> dict[str, str]:
        """Tag → revision of the Route's targets."""
        return {one["tag"]: one["revisionName"] for one in await self.routed() if "tag" in one}

    async def is_untagged(self) -> bool:
        """Whether the Route has no tags."""
        return not await self.tags()

    async def policy(self, revision: str) -> Any:
        """The scaling policy that the revision's PodAutoscaler has."""
        obj = await self.get(POD_AUTOSCALER, revision)
        return json.loads(obj["metadata"]["annotations"][POLICY_ANNOTATION])


@contextlib.asynccontextmanager
async def stage_on(
    cluster: EmbeddedCluster, clock: SteppedClock, script: Script, seen: Mortal | None = None, away: float = AWAY
) -> AsyncIterator[RolloutStage]:
    """One life of the controller after nobody led for `away` s. A rollout that it finds under way it has taken up."""
    stage = RolloutStage(cluster)
    stage.clock, stage.script = clock, script
    model = await stage.find(MODEL, "magika")
    found = rollout_of(model) if model is not None else None
    clock.step(away)
    async with platform(cluster, observer=script, model_clock=clock, seen=cast(Cluster | None, seen)):
        if found is not None and found.runs and away >= AWAY:
            await stage.rollout_is(lambda state: state.since != found.since)
        yield stage


@pytest.fixture
async def stage(guarded: EmbeddedCluster) -> AsyncIterator[RolloutStage]:
    """A stage on which version 1 has all the traffic, and the next is to be rolled out."""
    async with stage_on(guarded, SteppedClock(), Script()) as stage:
        await stage.deploy(model_object(version="1", rollout={}))
        await stage.comes_up(OLD)
        await stage.traffic_is({OLD: 100})
        await stage.model_is("True")
        yield stage


async def test_the_first_version_needs_no_rollout(stage: RolloutStage) -> None:
    assert rollout_of(await stage.model()) is None
    assert [one.get("latestRevision") for one in await stage.routed()] == [True]


async def test_a_good_version_goes_from_step_to_step_and_is_promoted(stage: RolloutStage) -> None:
    await stage.deploys(2)
    await stage.in_force(10)
    assert await stage.tags() == {"candidate": NEW, "stable": OLD}
    await stage.traffic_is({OLD: 90, NEW: 10})
    await stage.later(61)
    await stage.in_force(50)
    await stage.later(61)
    await stage.in_force(100)
    assert (await stage.history())[-1] == (NEW, "serving", "user")
    await stage.later(61)
    state = await stage.ends("Promoted")
    assert [one.percent for one in state.passed] == [10, 50, 100]
    assert all(
        one.judgement and one.judgement.verdict.decision == "pass" and one.judgement.verdict.numbers
        for one in state.passed
    )
    await stage.traffic_is({NEW: 100})
    await stage.becomes_history([(OLD, "superseded", "user"), (NEW, "promoted", "user")])
    await eventually(stage.is_untagged)
    await stage.tells_of("RolloutStarted", "RolloutProgressed", "RolloutPromoted", "Promoted")


async def test_a_bad_version_goes_back_within_two_looks_and_the_next_one_starts_as_usual(stage: RolloutStage) -> None:
    await stage.deploys(2)
    await stage.in_force(10)
    stage.script.answers = {NEW: BAD}
    for _ in range(2):
        await stage.later(10)
    state = await stage.ends("RolledBack")
    assert state.judgement is not None and state.judgement.verdict.decision == "fail"
    await stage.traffic_is({OLD: 100})
    await stage.becomes_history([
        (OLD, "superseded", "user"), (NEW, "rolledback", "user"), (OLD, "promoted", "rollback"),
    ])  # fmt: skip
    assert "traffic" not in (await stage.model())["spec"]
    await stage.model_is("True")
    await stage.deploys(3)
    await stage.in_force(10)
    await stage.traffic_is({OLD: 90, NEWER: 10})
    assert (await stage.history())[-1] == (NEWER, "serving", "user")


def _looked_after(state: RolloutState) -> float:
    """Seconds from the begin of the step to its last look."""
    return (
        seconds_between(state.seen_at, parse_timestamp(state.judgement.at))
        if state.seen_at and state.judgement
        else 0.0
    )


async def test_a_controller_that_restarts_in_every_step_ends_at_the_same(guarded: EmbeddedCluster) -> None:
    clock, script = SteppedClock(), Script()
    async with stage_on(guarded, clock, script) as stage:
        await stage.deploy(model_object(version="1", rollout={"steps": [20, 100]}))
        await stage.comes_up(OLD)
        await stage.traffic_is({OLD: 100})
        await stage.deploys(2)
        began = await stage.rollout_is(lambda state: state.percent == 20)
    for percent in (20, 100):
        async with stage_on(guarded, clock, script) as stage:
            await stage.in_force(percent)
            await stage.later(30)
            await stage.rollout_is(lambda state: _looked_after(state) == 30.0)
        async with stage_on(guarded, clock, script) as stage:
            await stage.later(31)
            await stage.rollout_is(lambda state, percent=percent: len(state.passed) > (percent == 100))  # type: ignore[misc]
    async with stage_on(guarded, clock, script) as stage:
        state = await stage.ends("Promoted")
        assert state.started_at == began.started_at
        assert [one.percent for one in state.passed] == [20, 100]
        await stage.traffic_is({NEW: 100})


@pytest.mark.fault("K1")
@pytest.mark.parametrize("writes", [1, 4, 7, 10, 13, 16])
async def test_a_controller_that_is_killed_between_two_writes_leaves_a_rollout_that_goes_on(
    guarded: EmbeddedCluster, writes: int
) -> None:
    clock, script = SteppedClock(), Script()
    async with stage_on(guarded, clock, script) as stage:
        await stage.deploy(model_object(version="1", rollout={"steps": [20, 100]}))
        await stage.comes_up(OLD)
        await stage.traffic_is({OLD: 100})
    mortal = Mortal(guarded, writes)
    async with stage_on(guarded, clock, script, mortal) as stage:
        await stage.edit({"spec": {"storageUri": "file:///models/v2"}})
        while mortal.left >= 0:
            if await stage.find(REVISION, NEW):
                await stage.comes_up(NEW)
            await stage.ingress_is_ready("magika")
            await stage.later(30)
            await stage.quiet()
    async with stage_on(guarded, clock, script) as stage:
        await stage.comes_up(NEW)
        passed: list[int] = []
        while passed != [20, 100]:
            state = await stage.rollout_is(lambda state: not state.runs or state.percent > 0)
            assert state.phase != "RolledBack", state.reasons
            passed = [one.percent for one in state.passed]
            await stage.later(30)
            await stage.quiet()
        await stage.ends("Promoted")
        await stage.traffic_is({NEW: 100})
        assert len(await revisions(stage)) == 2
        assert [line[:2] for line in await stage.history()] == [(OLD, "superseded"), (NEW, "promoted")]


async def test_a_newer_version_supersedes_the_rollout_under_way(stage: RolloutStage) -> None:
    await stage.deploys(2)
    await stage.in_force(10)
    await stage.deploys(3)
    await stage.rollout_is(lambda state: state.candidate == NEWER and state.percent == 10 and bool(state.seen_at))
    await stage.traffic_is({OLD: 90, NEWER: 10})
    await stage.becomes_history([(OLD, "serving", "user"), (NEW, "superseded", "user"), (NEWER, "serving", "user")])


async def test_pause_resume_abort_and_promote_as_the_command_sends_them(stage: RolloutStage) -> None:
    await stage.deploys(2)
    await stage.in_force(10)
    await stage.edit(pause(await stage.model()))
    await stage.ends("Paused")
    await stage.later(600)
    await stage.edit(resume(await stage.model()))
    assert (await stage.rollout_is(lambda state: state.phase == "Progressing")).step == 0
    await stage.edit(abort(await stage.model()))
    assert (await stage.ends("RolledBack")).reasons == ("aborted manually at 10 %",)
    await stage.traffic_is({OLD: 100})
    await stage.edit(promote(await stage.model()))
    await stage.ends("Promoted")
    await stage.traffic_is({NEW: 100})


async def test_a_rollback_by_hand_ends_the_rollout_and_pins_the_stable_version(stage: RolloutStage) -> None:
    await stage.deploys(2)
    await stage.in_force(10)
    await stage.edit(rollback(await stage.model(), await revisions(stage)))
    await stage.ends("RolledBack")
    await stage.traffic_is({OLD: 100})
    await stage.edit({"spec": {"traffic": None}})
    await stage.quiet()
    await stage.traffic_is({OLD: 100})


async def test_promoting_a_version_that_was_made_under_a_pin_needs_no_steps(stage: RolloutStage) -> None:
    await stage.edit({"spec": {"traffic": [{"revision": OLD, "percent": 100}]}})
    await stage.deploys(2)
    await stage.traffic_is({OLD: 100})
    assert rollout_of(await stage.model()) is None
    await stage.becomes(MODEL, "magika", lambda obj: obj["status"].get("latestReadyRevision") == NEW)
    await stage.edit(promote(await stage.model()))
    await stage.ends("Promoted")
    await stage.traffic_is({NEW: 100})


@pytest.mark.fault("K12")
async def test_a_version_that_never_becomes_ready_has_failed_and_moves_nothing(stage: RolloutStage) -> None:
    await stage.edit({"spec": {"storageUri": "file:///models/broken"}})
    await stage.rollout_is(lambda state: state.candidate == NEW and state.percent == 0)
    await stage.deployment_reports(NEW, 0)
    await stage.container_ends(NEW, 1, "no model is there")
    assert "no model is there" in (await stage.ends("Failed")).reasons[0]
    await stage.traffic_is({OLD: 100})


async def test_without_answers_a_rollout_holds_and_says_why(stage: RolloutStage) -> None:
    stage.script.answers = dict.fromkeys((OLD, NEW), Counts())
    await stage.deploys(2)
    await stage.in_force(10)
    await stage.later(61)
    state = await stage.rollout_is(lambda state: "too little traffic for a verdict" in state.reasons[0])
    assert state.step == 0


async def test_a_look_is_made_every_interval_and_not_at_every_pass(stage: RolloutStage) -> None:
    await stage.deploys(2)
    await stage.in_force(10)
    await stage.later(1)
    await stage.quiet()
    looks = stage.script.looks
    for _ in range(3):
        await stage.later(1)
        await stage.quiet()
    assert stage.script.looks == looks
    await stage.later(10)
    await stage.quiet()
    assert stage.script.looks == looks + 1


async def test_the_version_before_stays_warm_and_a_refused_one_goes_at_once(stage: RolloutStage) -> None:
    assert (await stage.policy(OLD))["scaleToZeroAfter"] == AUTO
    await stage.deploys(2)
    await stage.in_force(10)
    stage.script.answers = {NEW: BAD}
    await stage.later(20)
    await stage.ends("RolledBack")
    await stage.traffic_is({OLD: 100})
    await stage.becomes(POD_AUTOSCALER, NEW, _idle_after(1.0))
    await stage.deploys(3)
    await stage.in_force(10)
    await stage.becomes(POD_AUTOSCALER, OLD, _idle_after(600.0))
    await stage.edit(promote(await stage.model()))
    await stage.ends("Promoted")
    await stage.becomes(POD_AUTOSCALER, NEWER, _idle_after(AUTO))
    assert (await stage.policy(OLD))["scaleToZeroAfter"] == 600.0


def _idle_after(seconds: float) -> Callable[[Object], bool]:
    def check(obj: Object) -> bool:
        policy = json.loads(obj["metadata"]["annotations"][POLICY_ANNOTATION])
        return bool(policy["scaleToZeroAfter"] == seconds)

    return check


async def test_a_first_step_of_a_hundred_is_judged_by_what_the_stable_version_answered_before_it(
    stage: RolloutStage,
) -> None:
    await stage.edit({"spec": {"rollout": {"steps": [100]}}})
    stage.script.answers = {NEW: BAD}
    await stage.deploys(2)
    counted = await stage.rollout_is(lambda state: state.stable_counts.requests > 0)
    assert (counted.percent, counted.candidate_counts) == (0, Counts())
    await stage.later(61)
    state = await stage.ends("RolledBack")
    assert state.judgement is not None
    assert "error rate" in state.judgement.verdict.reasons[0]
    await stage.traffic_is({OLD: 100})


async def test_answers_under_a_split_by_hand_are_not_the_rollouts(stage: RolloutStage) -> None:
    await stage.deploys(2)
    await stage.in_force(10)
    assert stage.script.forgotten == []
    await stage.edit({"spec": {"traffic": [{"revision": OLD, "percent": 50}, {"revision": NEW, "percent": 50}]}})
    await stage.ends("Paused")
    await stage.later(61)
    await stage.quiet()
    model = await stage.model()
    state = rollout_of(model)
    assert state is not None
    assert stage.script.forgotten == [f"{model['metadata']['uid']} {state.started_at}"]


async def test_a_rollback_gives_the_stable_version_its_replicas_back_for_as_long_as_it_settles(
    stage: RolloutStage,
) -> None:
    await stage.deploys(2)
    assert (await stage.in_force(10)).stood == {"magika": 1}
    await stage.edit(rollback(await stage.model(), await revisions(stage)))
    await stage.ends("RolledBack")
    await stage.becomes(POD_AUTOSCALER, OLD, _least(1))
    await stage.later(61)
    await stage.becomes(POD_AUTOSCALER, OLD, _least(0))


def _least(replicas: int) -> Callable[[Object], bool]:
    def check(obj: Object) -> bool:
        policy = json.loads(obj["metadata"]["annotations"][POLICY_ANNOTATION])
        return bool(policy["minReplicas"] == replicas)

    return check
