"""Test `knodel rollout watch` and `status`: the view of a rollout, its changes, and the exit codes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from clusters.base.objects import MODEL, Object, parse_timestamp
from serving.client.models.rollout_view import bar, change_line, comparisons, duration, steps_line, title, view_of
from serving.reconciler.rollout.judging.verdict import Verdict
from serving.reconciler.rollout.state import Judgement, Phase, RolloutState
from tests.serving.cli.conftest import Served, check
from tests.support.terminal import Shown, running

OLD, NEW = "magika-00001", "magika-00002"
BEGAN, SEEN = "2026-11-26T10:00:00.000Z", "2026-11-26T10:01:00.000Z"
NOW = parse_timestamp(SEEN) + timedelta(seconds=25)
RULE = {"steps": [10, 50, 100], "stepDuration": "60s",
        "judge": {"metrics": [{"name": "drift", "query": "x", "max": 0.2}]}}  # fmt: skip
NUMBERS = {
    "stable.requests": 512.0, "candidate.requests": 96.0, "needed": 450.0, "stable.latency": 0.012,
    "candidate.latency": 0.015, "stable.errors": 0.01, "candidate.errors": 0.02, "errors.lower": -0.02,
    "errors.upper": 0.081, "errors.harm": 0.1, "metric.drift": 0.25, "above.drift": 1.0, "candidate.hanging": 2.0,
}  # fmt: skip
WAITING = Judgement(Verdict("wait", ("96 of about 450 requests", "a second reason"), NUMBERS), SEEN)


def model(phase: Phase = "Progressing", step: int = 1, **fields: Any) -> Object:
    """Return a Model with a rollout in this phase."""
    state = RolloutState(phase, NEW, OLD, BEGAN, BEGAN, step=step, percent=50, **{"seen_at": SEEN, **fields})
    shares = [{"revision": OLD, "percent": 50}, {"revision": NEW, "percent": 50}]
    history = [{"revision": NEW, "version": "7", "at": BEGAN, "cause": {"by": "user"}}]
    settled = [{"type": "ConfigurationsReady", "status": "True"}]
    return {
        "apiVersion": MODEL.api_version,
        "kind": MODEL.kind,
        "metadata": {"name": "magika", "namespace": "default", "generation": 1},
        "spec": {"storageUri": "s3://models/magika", "rollout": RULE},
        "status": {"rollout": state.to_json(), "traffic": shares, "history": history, "conditions": settled,
                   "observedGeneration": 1},
    }  # fmt: skip


def test_the_view_has_versions_steps_and_the_time_left() -> None:
    view = view_of(model(judgement=WAITING, reasons=("50 % in force", "96 of about 450 requests")), NOW)

    assert view is not None
    assert title(view) == f"magika: Progressing, {NEW} (7) after {OLD}, 1m25s"
    assert steps_line(view) == "10 % done  [50 %]  100 %"
    assert view.waits_for == "50 % in force; at least 35 s left in this step"
    assert view.judge == "wait, 25 s ago: 96 of about 450 requests"
    assert change_line(view).startswith(f"magika: Progressing, {NEW}, step 2 of 3, 50 % of the traffic: 50 % in force")


def test_the_figures_have_their_bounds() -> None:
    view = view_of(model(judgement=WAITING), NOW)

    assert view is not None
    assert comparisons(view) == [
        ("requests", "512", "96", "", "about 450 needed"),
        ("errors", "1.00%", "2.00%", "-2 to +8.1 points", "+10 points"),
        ("latency p95", "12 ms", "15 ms", "1.25 x", ""),
        ("drift", "", "0.25", "above in 1 judgements", "at most 0.2"),
        ("hanging requests", "0", "2", "", ""),
    ]


def test_the_figures_of_a_language_model_have_the_time_between_tokens() -> None:
    numbers = {
        "stable.interTokenLatency": 0.02, "candidate.interTokenLatency": 0.03, "stable.slowTokens": 0.04,
        "candidate.slowTokens": 0.5, "slowTokens.lower": 0.3, "slowTokens.upper": 1.0, "slowTokens.harm": 0.25,
    }  # fmt: skip
    view = view_of(model(judgement=Judgement(Verdict("fail", ("slow",), numbers), SEEN)), NOW)

    assert view is not None
    assert comparisons(view)[:2] == [
        ("slow tokens (p95 x 1.25)", "4.00%", "50.00%", "+30 to +100 points", "+25 points"),
        ("between tokens p95", "20 ms", "30 ms", "1.50 x", ""),
    ]


def test_a_paused_step_has_no_time_left() -> None:
    view = view_of(model("Paused", paused_at=SEEN, reasons=("paused by a command",)), NOW)

    assert view is not None
    assert view.seconds_left is None
    assert view.waits_for == "paused by a command"


@pytest.mark.parametrize("status", [{}, {"rollout": None}, {"rollout": {"phase": "Unheard"}}, {"rollout": []}])
def test_a_model_without_a_rollout_has_no_view(status: Object) -> None:
    assert view_of({**model(), "status": status}, NOW) is None


def test_bars_and_durations() -> None:
    assert [bar(percent).count("█") for percent in (0, 10, 50, 100)] == [0, 3, 16, 32]
    assert [duration(seconds) for seconds in (0.9, 65, 7_260)] == ["0s", "1m05s", "2h01m"]


@pytest.fixture
async def magika(served: Served) -> AsyncIterator[Served]:
    """Deploy a Model whose rollout is in its second step."""
    await served.deploy("magika", "--rollout")
    await becomes(served, "Progressing", judgement=WAITING)
    yield served


async def becomes(served: Served, phase: Phase, **fields: Any) -> None:
    """Set the phase of the rollout."""
    await served.set_status("magika", model(phase, **fields)["status"])


async def ended(served: Served, phase: Phase, *options: str, tty: bool) -> Shown:
    """Watch the rollout until it ends in this phase."""
    with running("rollout", "watch", "magika", *options, tty=tty) as command:
        await asyncio.to_thread(command.until, NEW)
        await becomes(served, phase, step=2, ended_at=SEEN, reasons=("the reason of the end",))
        return await asyncio.to_thread(command.end)


@pytest.mark.parametrize(("phase", "code"), [("Promoted", 0), ("RolledBack", 6), ("Failed", 6)])
async def test_the_exit_code_is_the_outcome(magika: Served, phase: Phase, code: int) -> None:
    shown = await ended(magika, phase, tty=False)

    assert shown.code == code
    assert f"magika: {phase}, {NEW}, step 3 of 3" in shown.lines[-1]
    assert len(shown.lines) == 2


async def test_a_terminal_gets_a_view_that_is_redrawn(magika: Served) -> None:
    shown = await ended(magika, "Promoted", tty=True)

    first, *_, last = shown.frames
    assert first[0].startswith(f"magika: Progressing, {NEW} (7) after {OLD}")
    assert "Traffic:  ████████████████░░░░░░░░░░░░░░░░  50 % magika-00001, 50 % magika-00002" in first
    assert any(line.split()[:3] == ["errors", "1.00%", "2.00%"] for line in first)
    assert last[0].startswith("magika: Promoted")
    assert all(len(line) <= 80 for frame in shown.frames for line in frame)


async def test_json_is_a_line_for_each_change(magika: Served) -> None:
    shown = await ended(magika, "RolledBack", "-o", "json", tty=False)

    first, last = map(json.loads, shown.lines)
    assert (first["phase"], first["step"], first["percent"]) == ("Progressing", 2, 50)
    assert first["rollout"]["verdict"]["numbers"]["candidate.requests"] == 96
    assert last["phase"] == "RolledBack"


async def test_status_prints_the_view_once(magika: Served) -> None:
    done, found = (
        await magika.knodel("rollout", "status", "magika"),
        await magika.knodel("rollout", "status", "magika", "-o", "json"),
    )

    assert (done.code, done.err) == (0, "")
    assert "10 % done  [50 %]  100 %" in done.out
    assert found.value()["candidate"] == NEW


@pytest.mark.parametrize("verb", ["watch", "status"])
async def test_a_model_without_rollouts_is_an_error_with_the_remedy(served: Served, verb: str) -> None:
    await served.deploy("magika")
    await served.set_status("magika", {"conditions": [{"type": "ConfigurationsReady", "status": "True"}]})
    check(await served.knodel("rollout", verb, "magika"), 1, ["has had no rollout", "knodel deploy magika --rollout"])
    await served.knodel("deploy", "magika", "--rollout", "--no-wait")
    await served.set_status("magika", {"conditions": [{"type": "ConfigurationsReady", "status": "True"}]})
    check(
        await served.knodel("rollout", verb, "magika"), 1, ["had no rollout: its next version is rolled out in steps"]
    )
    check(await served.knodel("rollout", verb, "nothing"), 3, ["nothing"])


async def test_a_watch_ends_after_its_timeout(magika: Served) -> None:
    done = await magika.knodel("rollout", "watch", "magika", "--timeout", "0s")

    assert done.code == 4
    assert "the rollout of model magika is Progressing after 0s: the rollout continues" in done.err


async def test_a_model_that_is_deleted_ends_the_watch(magika: Served) -> None:
    with running("rollout", "watch", "magika", tty=False) as command:
        await asyncio.to_thread(command.until, NEW)
        await magika.cluster.delete(MODEL, "magika", "default")
        shown = await asyncio.to_thread(command.end)

    assert shown.code == 3
    assert "model magika was deleted meanwhile" in shown.raw


async def test_an_ended_rollout_is_not_the_one_of_a_version_that_starts(magika: Served) -> None:
    await becomes(magika, "Promoted", ended_at=SEEN)
    starting = [{"type": "ConfigurationsReady", "status": "Unknown"}]
    await magika.set_status("magika", {**model("Promoted", ended_at=SEEN)["status"], "conditions": starting})
    with running("rollout", "watch", "magika", tty=False) as command:
        await asyncio.to_thread(command.until, "Promoted")
        await becomes(magika, "Progressing", step=0)
        await asyncio.to_thread(command.until, "Progressing")
        shown = await asyncio.to_thread(command.interrupt)

    assert shown.code == 130


def test_times_of_a_faster_clock_are_not_negative() -> None:
    view = view_of(model(judgement=WAITING), datetime(2026, 11, 26, 9, 0, tzinfo=UTC))

    assert view is not None
    assert (view.seconds, view.judged_ago) == (0.0, 0.0)
