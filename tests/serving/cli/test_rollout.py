"""Test `pause`, `resume`, `abort` and `promote` of a rollout, and its output in other verbs."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from clusters.base.objects import MODEL, Object
from serving.reconciler.rollout.judging.verdict import Verdict
from serving.reconciler.rollout.state import Judgement, Passed, Phase, RolloutState
from tests.serving.cli.conftest import Served
from tests.serving.cli.test_models import STATUS, magika
from tests.support.wait import eventually

__all__ = ["magika"]

OLD, NEW = "magika-00001", "magika-00002"
NOW = "2026-01-01T00:00:00.000Z"
LOOK = Judgement(Verdict("wait", ("errors: 0.00% against 0.10%",), {"needed": 530.0}), NOW)


def rolling(phase: str, percent: int = 10) -> Object:
    """Return `status.rollout` of the second version, in its second step."""
    return RolloutState(
        cast(Phase, phase), NEW, OLD, NOW, NOW, step=1, percent=percent, seen_at=NOW, ended_at=NOW, judgement=LOOK,
        reasons=("50 % in force",), passed=(Passed(10, NOW, NOW, LOOK),),
    ).to_json()  # fmt: skip


async def becomes(served: Served, phase: str) -> None:
    """When a command is stored on the Model, write the status that the reconciler would write."""
    before = await served.model("magika")

    async def changed() -> bool:
        return bool((await served.model("magika"))["metadata"] != before["metadata"])

    await eventually(changed)
    shares = {"Promoted": {NEW: 100}, "RolledBack": {OLD: 100}}.get(phase, {OLD: 90, NEW: 10})
    traffic = [{"revision": name, "percent": percent} for name, percent in shares.items()]
    await served.set_status("magika", {"traffic": traffic, "rollout": rolling(phase)})


def command_of(model: Object) -> Any:
    return model["metadata"].get("annotations", {}).get("knodel.dev/rollout")


@pytest.mark.parametrize(
    ("verb", "before", "after", "command"),
    [
        ("pause", "Progressing", "Paused", f"pause@{NEW}"),
        ("resume", "Paused", "Progressing", None),
        ("abort", "Paused", "RolledBack", f"abort@{NEW}"),
        ("promote", "Progressing", "Promoted", f"promote@{NEW}"),
        ("promote", "RolledBack", "Promoted", f"promote@{NEW}"),
    ],
)
async def test_a_command_is_written_and_waited_for(
    magika: Served, verb: str, before: str, after: str, command: str | None
) -> None:
    await magika.set_status("magika", {"rollout": rolling(before), "latestReadyRevision": NEW})
    paused = {"metadata": {"annotations": {"knodel.dev/rollout": f"pause@{NEW}"}}}
    if before == "Paused":
        await magika.cluster.patch(MODEL, "magika", paused, "default", manager="test")
    done, _ = await asyncio.gather(magika.knodel(verb, "magika", "--timeout", "10s"), becomes(magika, after))
    assert done.code == 0, done.err
    assert f"Rollout: {after}, {NEW} after {OLD}" in done.out
    assert command_of(await magika.model("magika")) == command


@pytest.mark.parametrize("verb", ["pause", "resume", "abort"])
async def test_a_command_without_a_running_rollout_is_an_error(magika: Served, verb: str) -> None:
    done = await magika.knodel(verb, "magika")
    assert (done.code, done.out) == (1, "")
    assert "has no running rollout" in done.err


async def test_a_rollout_that_ends_meanwhile_cannot_be_paused(magika: Served) -> None:
    await magika.set_status("magika", {"rollout": rolling("Progressing")})
    done, _ = await asyncio.gather(magika.knodel("pause", "magika", "--timeout", "10s"), becomes(magika, "Promoted"))
    assert done.code == 1
    assert "has ended: Promoted" in done.err


@pytest.mark.parametrize(
    ("verb", "words"),
    [
        ("get", ["Rollout", "Progressing"]),
        ("describe", ["Rollout: Progressing", "10 %  done", "judge: wait", "needed 530"]),
        ("explain", [f"10 % to {NEW}, by the rollout", "Rollout: Progressing", "step 2", "50 % in force"]),
        ("history", ["Rollout: Progressing"]),
        ("list", ["ROLLOUT", "Progressing"]),
    ],
)
async def test_a_rollout_is_shown_to_people(magika: Served, verb: str, words: list[str]) -> None:
    await magika.set_status("magika", {"rollout": rolling("Progressing")})
    done = await magika.knodel(*([verb] if verb == "list" else [verb, "magika"]))
    assert done.code == 0, done.err
    assert all(word in done.out for word in words), done.out


async def test_a_judge_without_requests_has_nothing_to_compare(magika: Served) -> None:
    rollout = rolling("Progressing")
    numbers = {"stable.requests": 0.0, "candidate.requests": 0.0, "errors.lower": -1.0, "errors.upper": 1.0}
    rollout["verdict"] |= {"reasons": ["the candidate has not answered any request yet"], "numbers": numbers}
    await magika.set_status("magika", {"rollout": rollout})

    out = (await magika.knodel("describe", "magika")).out

    assert "judge: wait: no requests to compare yet" in out
    assert "errors.lower" not in out


async def test_a_refused_version_is_explained(magika: Served) -> None:
    await magika.set_status("magika", {"rollout": rolling("RolledBack", 0)})
    done = await magika.knodel("explain", "magika")
    assert f"all to {OLD}, since {NEW} was rolled back" in done.out


async def test_deploy_prints_the_rollout_that_has_begun(magika: Served) -> None:
    await magika.set_status("magika", {**STATUS, "rollout": rolling("Progressing")})
    done = await magika.knodel("deploy", "magika", "--min", "0", "--no-wait")
    assert "rollout progressing, step 2: 10 %" in done.out
