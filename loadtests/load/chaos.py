"""Chaos scenario: processes of the platform are killed with SIGKILL under load."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from loadtests.bench.figure import Figure
from loadtests.load import arrivals
from loadtests.load.generator import Generator
from loadtests.load.loaded_platform import LoadedPlatform
from loadtests.load.responses import Responses
from loadtests.load.result import ScenarioResult, charts_of, notes_of, replicas_chart
from loadtests.load.sampler import Sampler

NAME = "chaos"
WINDOW = 10.0
"""Seconds between two kills. Failures within this time count for the first kill. Knative's prober uses the same window.
"""
IN_FLIGHT = 0.5
"""Seconds before a kill. Requests that were due then may still be in flight and count for the kill."""
QUIET = 5.0  # s before the first kill
KILLED = 90.0
"""Minimum success rate around the kill of a process in the request path, in per cent (Knative's
`TestActivatorHANonGraceful`).
"""
UNTOUCHED = 100.0
"""Minimum success rate around the kill of any other process, in per cent (Knative's `TestControllerHA`)."""
STRETCH = 5.0
"""Maximum seconds of continuous failures (a restart of the gateway)."""
AWAY = 2.0  # s until the platform is started again


@dataclass(frozen=True, slots=True)
class Kill:
    """A kill: `do` kills the process, `least` is the minimum success rate around it in per cent."""

    what: str
    do: Callable[[LoadedPlatform], None]
    least: float


def chaos(target: LoadedPlatform, rate: float) -> ScenarioResult:
    """Run a steady load on two replicas and kill a process every `WINDOW` seconds."""
    target.deploy(NAME, minReplicas=2, maxReplicas=2)
    seconds = QUIET + WINDOW * len(KILLS)
    with (
        Sampler(lambda: target.ready(NAME)) as sampler,
        target.load(NAME, arrivals.steady(rate, seconds)) as generator,
    ):
        killed = _kill_all(target, generator)
        responses = generator.responses()
    target.delete(NAME)
    moments = [moment - responses.began for moment in killed]
    charts = [*charts_of(responses), replicas_chart(sampler.since(responses.began))]
    return ScenarioResult("chaos", _description(rate), _figures(responses, moments), charts, notes_of(responses))


def _kill_all(target: LoadedPlatform, generator: Generator) -> list[float]:
    """Make all kills and return their times on the monotonic clock."""
    first, moments = generator.start_time() + QUIET, []
    for number, kill in enumerate(KILLS):
        time.sleep(max(0.0, first + number * WINDOW - time.monotonic()))
        moments.append(time.monotonic())
        kill.do(target)
    return moments


def _figures(responses: Responses, moments: list[float]) -> list[Figure]:
    windows = [responses.between(moment - IN_FLIGHT, moment - IN_FLIGHT + WINDOW) for moment in moments]
    before = responses.between(0.0, moments[0] - IN_FLIGHT)
    return [
        Figure("requests", len(responses), ""),
        Figure("success rate before the first kill", 100 * before.success_rate, "%", 100.0, least=True),
        *(
            Figure(f"success rate around kill -9 of {kill.what}", 100 * found.success_rate, "%", kill.least, least=True)
            for kill, found in zip(KILLS, windows, strict=True)
        ),
        Figure("longest time of failures", responses.worst_stretch(), "s", STRETCH),
        Figure("success rate in the last seconds", 100 * responses.between(moments[-1] + WINDOW / 2, 1e9).success_rate,
               "%", 100.0, least=True),
    ]  # fmt: skip


def _first(role: str, target: LoadedPlatform) -> None:
    """Send SIGKILL to the first process of this role."""
    pids = sorted(target.pids(role))
    if not pids:
        raise SystemExit(f"chaos: no {role} process to kill")
    os.kill(pids[0], signal.SIGKILL)


def _platform(target: LoadedPlatform) -> None:
    _first("platform", target)
    time.sleep(AWAY)
    target.platform.start()


KILLS = (
    Kill("one of two replicas", partial(_first, "replica"), KILLED),
    Kill("the activator", partial(_first, "activator"), UNTOUCHED),
    Kill("the platform, then restarted", _platform, UNTOUCHED),
    Kill("the gateway", partial(_first, "gateway"), KILLED),
)
"""The kills, in this order."""


def _description(rate: float) -> str:
    return (
        f"{rate:g} requests per second to two replicas. A process is killed every {WINDOW:g} s. At most a tenth of the "
        "requests may fail if the process is in the request path, else none."
    )
