"""Half an hour of steady load, with a model beside it that goes to zero and comes back: what does the platform keep?"""

from __future__ import annotations

import time
from functools import partial

import numpy as np

from autoscaler.scaling.table import FloatArray
from loadtests.bench.figure import Figure
from loadtests.bench.processes import Held
from loadtests.load import arrivals, held
from loadtests.load.answers import Answers
from loadtests.load.held import MEGABYTE, held_now
from loadtests.load.scene import BLUE, GREEN, GREY, ORANGE, RED, Scene, charts_of, figures_of, notes_of
from loadtests.load.stage import Stage
from loadtests.load.watch import Watch
from loadtests.simulate.chart import Chart, Line

EVERY = 5.0  # s between looks
STEADY, SLEEPER = "soak", "sleeper"
RATE = 50.0  # requests a second to the steady model
WAKES = 40.0  # s between two bursts of the other one, and ...
BURST, ASLEEP = 10, "5s"  # ... its requests, and how long after them it may go
COLOURS = (BLUE, ORANGE, GREEN, RED, GREY)


def soak(stage: Stage, seconds: float, rate: float = RATE) -> Scene:
    """Both models, asked for `seconds`."""
    stage.deploy(STEADY)
    stage.deploy(SLEEPER, minReplicas=0, scaleToZeroAfter=ASLEEP)
    looks: list[tuple[float, dict[tuple[int, str], Held]]] = []
    began = time.monotonic()

    def look() -> float:
        looks.append((time.monotonic() - began, held_now(stage.platform.state)))
        return len(looks[-1][1])

    with (
        Watch(look, EVERY),
        stage.load(STEADY, arrivals.steady(rate, seconds)) as steady,
        stage.load(SLEEPER, _wakings(seconds)) as sleeper,
    ):
        answers, woken = steady.answers(), sleeper.answers()
    stage.delete(STEADY)
    stage.delete(SLEEPER)
    figures = [*figures_of(answers), *_of_sleeper(woken), *held.figures(looks)]
    story = (
        f"{rate:g} requests a second for {seconds / 60:g} minutes; beside them a model that goes to zero and is woken "
        f"by {BURST} requests every {WAKES:g} s. The first {held.SETTLING:.0%} of the time are left out of what grows."
    )
    notes = [*notes_of(answers), *notes_of(woken)]
    return Scene("soak", story, figures, [*charts_of(answers), *_charts(looks)], notes)


def _wakings(seconds: float) -> FloatArray:
    times = np.arange(0.0, seconds, WAKES)
    return np.concatenate([moment + np.arange(BURST) * 0.01 for moment in times])


def _of_sleeper(woken: Answers) -> list[Figure]:
    return [
        Figure("the model at zero: answered rightly", 100.0 * woken.right, "%", 100.0, least=True),
        Figure("the model at zero: an answer, p50", woken.quantile(0.5), "ms"),
    ]


def _charts(looks: held.Looks) -> list[Chart]:
    found = held.series(looks)
    titles = {"memory": "Memory of its own, MB", "files": "Open files", "tasks": "Tasks (threads)"}
    return [Chart(title, "seconds", _lines(found, what)) for what, title in titles.items()]


def _lines(found: dict[tuple[int, str], list[tuple[float, Held]]], what: str) -> list[Line]:
    value = partial(_value, what)
    return [
        Line(
            f"{role} {pid}", COLOURS[number % len(COLOURS)], [(moment, value(one)) for moment, one in seen], steps=False
        )
        for number, ((pid, role), seen) in enumerate(found.items())
    ]


def _value(what: str, one: Held) -> float:
    """As the chart has it: memory in MB."""
    return float(getattr(one, what)) / (MEGABYTE if what == "memory" else 1)
