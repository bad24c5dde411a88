"""Rollouts: step by step under load, by hand, and with replicas that take turns; no request fails meanwhile."""

from __future__ import annotations

from typing import Any

from clusters.base.objects import MODEL, POD, POD_AUTOSCALER, Object, name_of
from serving.reconciler.rollout.commands import abort, pause, promote, resume
from serving.reconciler.rollout.state import RolloutState, rollout_of
from tests.scenarios.world import MANAGER, World

QUICK: dict[str, Any] = {
    "steps": [20, 100], "stepDuration": "2s", "judge": {"interval": "1s", "maxLatencyRatio": 100},
    "onInsufficientTraffic": "promote",
}  # fmt: skip
"""A rollout that waits for nobody, and asks little of a machine that does much else."""


async def rollout_is(world: World, name: str, phase: str, percent: int | None = None) -> RolloutState:
    """The rollout of the Model's second version, once it is so."""

    def holds(found: Object) -> bool:
        state = rollout_of(found)
        if state is None or state.phase != phase:
            return False
        return percent is None or (state.percent == percent and bool(state.seen_at))

    state = rollout_of(await world.until(name, holds))
    assert state is not None
    return state


async def command(world: World, name: str, change: Any) -> None:
    found = await world.cluster.get(MODEL, name, world.namespace)
    await world.cluster.patch(MODEL, name, change(found), world.namespace, manager=MANAGER)


async def test_a_rollout_moves_the_traffic_step_by_step_and_loses_no_request(world: World) -> None:
    await world.deploy("rolling", storageUri=world.artifacts("double"), version="1", minReplicas=1, rollout=QUICK)
    async with world.under_load("rolling") as load:
        await world.deploy("rolling", storageUri=world.artifacts("triple"), version="2", wait=False)
        state = await rollout_is(world, "rolling", "Promoted")
        await world.carries("rolling", {"rolling-00002": 100})
        after = await world.requests("rolling", 100)

    assert [one.percent for one in state.passed] == [20, 100]
    assert all(one.judgement and one.judgement.verdict.numbers["candidate.requests"] > 0 for one in state.passed)
    assert load.failures == after.failures == []
    assert set(after.answers) == {"rolling-00002"}
    history = (await world.cluster.get(MODEL, "rolling", world.namespace))["status"]["history"]
    assert [one["outcome"] for one in history] == ["superseded", "promoted"]


async def test_a_version_that_takes_other_inputs_is_rolled_back_though_no_server_failed(world: World) -> None:
    spec = {**QUICK, "stepDuration": "1h", "judge": {**QUICK["judge"], "count4xx": True}}
    await world.deploy("other", storageUri=world.artifacts("double"), minReplicas=1, rollout=spec)
    async with world.under_load("other") as load:
        await world.deploy("other", storageUri=world.artifacts("text"), wait=False)
        state = await rollout_is(world, "other", "RolledBack")
        await world.carries("other", {"other-00001": 100})
        after = await world.requests("other", 50)

    assert state.judgement is not None and state.judgement.verdict.numbers["candidate.errors"] == 1.0
    assert load.failures and all(one.startswith("400 ") for one in load.failures)
    assert after.failures == [] and set(after.answers) == {"other-00001"}


async def test_a_rollout_is_held_its_tags_answer_and_an_abort_gives_all_back(world: World) -> None:
    held = {**QUICK, "steps": [50, 100], "onInsufficientTraffic": "hold"}
    await world.deploy("held", storageUri=world.artifacts("double"), minReplicas=1, rollout=held)
    async with world.under_load("held") as load:
        await world.deploy("held", storageUri=world.artifacts("triple"), wait=False)
        await rollout_is(world, "held", "Progressing", 50)
        await command(world, "held", pause)
        await rollout_is(world, "held", "Paused")
        assert (await world.ask("held", tag="candidate")).revision == "held-00002"
        assert (await world.ask("held", tag="stable")).revision == "held-00001"
        await command(world, "held", resume)
        await rollout_is(world, "held", "Progressing")
        await command(world, "held", abort)
        await rollout_is(world, "held", "RolledBack")
        await world.carries("held", {"held-00001": 100})
        back = await world.requests("held", 50)
        await command(world, "held", promote)
        await world.carries("held", {"held-00002": 100})
    assert set(back.answers) == {"held-00001"}
    assert load.failures == back.failures == []


async def test_replicas_of_both_versions_take_turns_within_the_surge(world: World) -> None:
    spec: dict[str, Any] = {"minReplicas": 2, "maxReplicas": 2, "rollout": QUICK}
    await world.deploy("turns", storageUri=world.artifacts("double"), **spec)
    most = 0

    async def count() -> int:
        """Replicas that both versions hold, as their PodAutoscalers and the Pods that are not leaving tell."""
        scalers = (await world.cluster.list(POD_AUTOSCALER, world.namespace)).items
        wanted = sum(int((one.get("status") or {}).get("desiredScale") or 0) for one in scalers if _is_of(one, "turns"))
        pods = (await world.cluster.list(POD, world.namespace)).items
        alive = [one for one in pods if _is_of(one, "turns") and "deletionTimestamp" not in one["metadata"]]
        return max(wanted, len(alive))

    async def two() -> bool:
        return await count() == 2

    await world.eventually(two)
    async with world.under_load("turns", 2) as load:
        await world.deploy("turns", storageUri=world.artifacts("triple"), wait=False)

        async def ended() -> bool:
            nonlocal most
            most = max(most, await count())
            state = rollout_of(await world.cluster.get(MODEL, "turns", world.namespace))
            return state is not None and not state.runs

        await world.eventually(ended, 60.0)
        state = await rollout_is(world, "turns", "Promoted")
    assert load.failures == []
    assert most <= 3
    assert [one.percent for one in state.passed] == [20, 100]


def _is_of(obj: Object, model: str) -> bool:
    return name_of(obj).startswith(f"{model}-0")
