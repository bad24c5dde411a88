"""Soak test: half an hour of steady load, and a second model that scales to zero and back, to find leaks."""

from __future__ import annotations

import time
from functools import partial

import numpy as np

from autoscaler.scaling.table import FloatArray
from loadtests.bench.figure import Figure
from loadtests.bench.processes import ProcessUsage
from loadtests.load import arrivals, process_usage
from loadtests.load.loaded_platform import LoadedPlatform
from loadtests.load.process_usage import MEGABYTE, sample_processes
from loadtests.load.responses import Responses
from loadtests.load.result import BLUE, GREEN, GREY, ORANGE, RED, ScenarioResult, charts_of, figures_of, notes_of
from loadtests.load.sampler import Sampler
from loadtests.simulate.chart import Chart, Line

EVERY = 5.0  # s between samples
STEADY, SLEEPER = "soak", "sleeper"
RATE = 50.0  # requests per second to the steady model
WAKES = 40.0  # s between two bursts to the other model
BURST, ASLEEP = 10, "5s"  # requests of a burst, and time to scale to zero after it
COLOURS = (BLUE, ORANGE, GREEN, RED, GREY)


def soak(target: LoadedPlatform, seconds: float, rate: float = RATE) -> ScenarioResult:
    """Apply load to both models for `seconds`."""
    target.deploy(STEADY)
    target.deploy(SLEEPER, minReplicas=0, scaleToZeroAfter=ASLEEP)
    samples: list[tuple[float, dict[tuple[int, str], ProcessUsage]]] = []
    began = time.monotonic()

    def look() -> float:
        samples.append((time.monotonic() - began, sample_processes(target.platform.state)))
        return len(samples[-1][1])

    with (
        Sampler(look, EVERY),
        target.load(STEADY, arrivals.steady(rate, seconds)) as steady,
        target.load(SLEEPER, _wakings(seconds)) as sleeper,
    ):
        responses, woken = steady.responses(), sleeper.responses()
    target.delete(STEADY)
    target.delete(SLEEPER)
    figures = [*figures_of(responses), *_of_sleeper(woken), *process_usage.figures(samples)]
    description = (
        f"{rate:g} requests per second for {seconds / 60:g} minutes. A second model scales to zero and receives "
        f"{BURST} requests every {WAKES:g} s. Growth counts after the first {process_usage.SETTLING:.0%} of the time."
    )
    notes = [*notes_of(responses), *notes_of(woken)]
    return ScenarioResult("soak", description, figures, [*charts_of(responses), *_charts(samples)], notes)


def _wakings(seconds: float) -> FloatArray:
    times = np.arange(0.0, seconds, WAKES)
    return np.concatenate([moment + np.arange(BURST) * 0.01 for moment in times])


def _of_sleeper(woken: Responses) -> list[Figure]:
    return [
        Figure("the model at zero: success rate", 100.0 * woken.success_rate, "%", 100.0, least=True),
        Figure("the model at zero: latency, p50", woken.quantile(0.5), "ms"),
    ]


def _charts(samples: process_usage.Samples) -> list[Chart]:
    found = process_usage.series(samples)
    titles = {"memory": "Anonymous memory, MB", "files": "Open files", "tasks": "Tasks (threads)"}
    return [Chart(title, "seconds", _lines(found, what)) for what, title in titles.items()]


def _lines(found: dict[tuple[int, str], list[tuple[float, ProcessUsage]]], what: str) -> list[Line]:
    value = partial(_value, what)
    return [
        Line(
            f"{role} {pid}", COLOURS[number % len(COLOURS)], [(moment, value(one)) for moment, one in seen], steps=False
        )
        for number, ((pid, role), seen) in enumerate(found.items())
    ]


def _value(what: str, one: ProcessUsage) -> float:
    """Return the value for the chart; memory in MB."""
    return float(getattr(one, what)) / (MEGABYTE if what == "memory" else 1)
