"""The loads by their names: each deploys a model, asks it in one shape, and says what came of it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from autoscaler.scaling.table import FloatArray
from loadtests.bench.figure import Figure
from loadtests.load import arrivals
from loadtests.load.answers import Answers
from loadtests.load.chaos import chaos
from loadtests.load.gateway import gateway
from loadtests.load.scene import Scene, charts_of, figures_of, notes_of, replicas_chart
from loadtests.load.stage import HANDLER, Stage
from loadtests.simulate.trace import open_trace

P95 = 115.0
"""Milliseconds for a handler of 100 (Knative's `load-test`: 100 to 115)."""
SLOWEST = 10_000.0
"""Milliseconds, starts of replicas included (Knative's `load-test`)."""
ROLLOUT = 10.0
"""Milliseconds that p95 may grow by while a version is replaced."""
LAST = 1.0
"""Seconds at the end of a rollout in which the new version has all the traffic."""
SCALING: Mapping[str, object] = {"maxReplicas": 4, "scaleTarget": 10, "containerConcurrency": 40}
"""So that the load's peaks need more than one replica."""


@dataclass(frozen=True, slots=True)
class Size:
    """Seconds of a load, and requests a second of it on average or at its peak."""

    seconds: float
    rate: float


def steady(stage: Stage, size: Size) -> Scene:
    """One rate, one replica."""
    stage.deploy("steady")
    answers, _ = stage.play("steady", arrivals.steady(size.rate, size.seconds))
    stage.delete("steady")
    story = f"{size.rate:g} requests a second, evenly, to one replica."
    return Scene("steady", story, [*figures_of(answers), _p95(answers)], charts_of(answers), notes_of(answers))


def burst(stage: Stage, size: Size) -> Scene:
    """Little, and a lot for a moment, three times."""
    every = size.seconds / 3
    due = arrivals.bursts(size.rate / 10, size.rate, size.seconds, every, every / 4)
    story = f"{size.rate / 10:g} requests a second, and {size.rate:g} in the last quarter of each {every:g} s."
    return _scaled(stage, "burst", story, due)


def diurnal(stage: Stage, size: Size) -> Scene:
    """Two days."""
    due = arrivals.diurnal(size.rate / 20, size.rate, size.seconds, days=2)
    story = f"Two days of {size.seconds / 2:g} s: {size.rate / 20:g} requests a second by night, {size.rate:g} by noon."
    return _scaled(stage, "diurnal", story, due)


def trace(stage: Stage, size: Size) -> Scene:
    """A real service's requests, from nothing."""
    due = arrivals.replay(open_trace("code"), size.seconds, size.rate)
    story = (
        f"The first {len(due)} requests of the public trace `code` of Azure's LLM services, so fast that {size.rate:g} "
        "a second come on average. The model is at zero when they begin."
    )
    return _scaled(stage, "trace", story, due, minReplicas=0, scaleToZeroAfter="1s")


def rollout(stage: Stage, size: Size) -> Scene:
    """A version replaces another one in the middle of a steady load."""
    name, old, new = "rollout", 2.0, 3.0
    stage.deploy(name, old)
    replaced = threading.Timer(size.seconds / 2, lambda: stage.deploy(name, new))
    with stage.load(name, arrivals.steady(size.rate, size.seconds), (old, new)) as generator:
        generator.begun()
        replaced.start()
        answers = generator.answers()
    replaced.join()
    stage.delete(name)
    before, after = answers.between(1.0, size.seconds / 2), answers.between(size.seconds / 2, size.seconds)
    grown = after.quantile(0.95) - before.quantile(0.95)
    last = answers.between(size.seconds - LAST, size.seconds)
    figures = [
        *figures_of(answers),
        Figure("p95 while the version is replaced grows by", grown, "ms", ROLLOUT),
        Figure(
            "answers of the new version at the end", 100.0 * float((last.which == 1).mean()), "%", 100.0, least=True
        ),
    ]
    story = f"{size.rate:g} requests a second to one replica; after {size.seconds / 2:g} s a new version takes over."
    return Scene(name, story, figures, charts_of(answers), notes_of(answers))


def _scaled(stage: Stage, name: str, story: str, due: FloatArray, **spec: object) -> Scene:
    """A load that needs several replicas at its peaks."""
    stage.deploy(name, 2.0, **SCALING, **spec)
    if spec.get("minReplicas") == 0:
        stage.until(lambda: not stage.platform.pods(name))
    answers, watch = stage.play(name, due)
    stage.delete(name)
    slowest = Figure("an answer, slowest, starts included", answers.quantile(1.0), "ms", SLOWEST)
    figures = [*figures_of(answers)[:-1], slowest]
    charts = [*charts_of(answers), replicas_chart(watch.since(answers.began))]
    return Scene(name, story, figures, charts, notes_of(answers))


def _p95(answers: Answers) -> Figure:
    return Figure(f"an answer of {1000 * HANDLER:g} ms, p95", answers.quantile(0.95), "ms", P95)


SCENES: Mapping[str, tuple[Callable[[Stage, Size], Scene], Size]] = {
    "steady": (steady, Size(30.0, 200.0)),
    "burst": (burst, Size(45.0, 150.0)),
    "diurnal": (diurnal, Size(60.0, 150.0)),
    "trace": (trace, Size(45.0, 40.0)),
    "rollout": (rollout, Size(30.0, 200.0)),
    "chaos": (lambda stage, size: chaos(stage, size.rate), Size(0.0, 100.0)),
    "gateway": (lambda stage, size: gateway(stage, size.seconds, size.rate), Size(8.0, 1000.0)),
}
"""In this order; seconds and requests a second of each on two cores."""
