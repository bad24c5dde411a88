"""Processes that are killed with SIGKILL while requests go on, and what may be lost of them."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from loadtests.bench.figure import Figure
from loadtests.load import arrivals
from loadtests.load.answers import Answers
from loadtests.load.generator import Generator
from loadtests.load.scene import Scene, charts_of, notes_of, replicas_chart
from loadtests.load.stage import Stage
from loadtests.load.watch import Watch

NAME = "chaos"
WINDOW = 10.0
"""Seconds from one kill to the next, in which what it costs is counted: the time that Knative's prober looks."""
IN_FLIGHT = 0.5
"""Seconds before a kill in which what was due may still be under way: it belongs to the kill."""
QUIET = 5.0  # s before the first
KILLED = 90.0
"""Per cent that are right in the window of a hard kill, at least (Knative's `TestActivatorHANonGraceful`)."""
UNTOUCHED = 100.0
"""Per cent, where what was killed is in nobody's way (Knative's `TestControllerHA`)."""
STRETCH = 5.0
"""Seconds that failures may last without a break (a restart of the gateway)."""
AWAY = 2.0  # s until somebody starts the platform again


@dataclass(frozen=True, slots=True)
class Kill:
    """`do` ends something; `least` per cent of the window's requests are answered rightly."""

    what: str
    do: Callable[[Stage], None]
    least: float


def chaos(stage: Stage, rate: float) -> Scene:
    """A kill every `WINDOW` seconds under a steady load on two replicas."""
    stage.deploy(NAME, minReplicas=2, maxReplicas=2)
    seconds = QUIET + WINDOW * len(KILLS)
    with (
        Watch(lambda: stage.ready(NAME)) as watch,
        stage.load(NAME, arrivals.steady(rate, seconds)) as generator,
    ):
        killed = _kill_all(stage, generator)
        answers = generator.answers()
    stage.delete(NAME)
    moments = [moment - answers.began for moment in killed]
    charts = [*charts_of(answers), replicas_chart(watch.since(answers.began))]
    return Scene("chaos", _story(rate), _figures(answers, moments), charts, notes_of(answers))


def _kill_all(stage: Stage, generator: Generator) -> list[float]:
    """The moments, of the monotonic clock."""
    first, moments = generator.begun() + QUIET, []
    for number, kill in enumerate(KILLS):
        time.sleep(max(0.0, first + number * WINDOW - time.monotonic()))
        moments.append(time.monotonic())
        kill.do(stage)
    return moments


def _figures(answers: Answers, moments: list[float]) -> list[Figure]:
    windows = [answers.between(moment - IN_FLIGHT, moment - IN_FLIGHT + WINDOW) for moment in moments]
    before = answers.between(0.0, moments[0] - IN_FLIGHT)
    return [
        Figure("requests", len(answers), ""),
        Figure("answered rightly before anything was killed", 100 * before.right, "%", 100.0, least=True),
        *(
            Figure(f"right around kill -9 of {kill.what}", 100 * found.right, "%", kill.least, least=True)
            for kill, found in zip(KILLS, windows, strict=True)
        ),
        Figure("longest time without a right answer", answers.worst_stretch(), "s", STRETCH),
        Figure("right in the last seconds", 100 * answers.between(moments[-1] + WINDOW / 2, 1e9).right, "%", 100.0,
               least=True),
    ]  # fmt: skip


def _first(role: str, stage: Stage) -> None:
    """SIGKILL to the first process of this role; each is one that the stage started."""
    pids = sorted(stage.pids(role))
    if not pids:
        raise SystemExit(f"chaos: there is no {role} to kill")
    os.kill(pids[0], signal.SIGKILL)


def _platform(stage: Stage) -> None:
    _first("platform", stage)
    time.sleep(AWAY)
    stage.platform.start()


KILLS = (
    Kill("a replica of two", partial(_first, "replica"), KILLED),
    Kill("the activator", partial(_first, "activator"), UNTOUCHED),
    Kill("the platform, which is started again", _platform, UNTOUCHED),
    Kill("the gateway", partial(_first, "gateway"), KILLED),
)
"""In this order."""


def _story(rate: float) -> str:
    return (
        f"{rate:g} requests a second to two replicas, while their processes are killed one after the other, "
        f"{WINDOW:g} s apart. What is in the way of requests may lose a tenth of the window's; what is not, none."
    )
