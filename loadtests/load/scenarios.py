"""The scenarios by name. Each deploys a model, applies one shape of load and returns its result."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from autoscaler.scaling.table import FloatArray
from loadtests.bench.figure import Figure
from loadtests.load import arrivals
from loadtests.load.chaos import chaos
from loadtests.load.gateway import gateway
from loadtests.load.loaded_platform import HANDLER, LoadedPlatform
from loadtests.load.responses import Responses
from loadtests.load.result import ScenarioResult, charts_of, figures_of, notes_of, replicas_chart
from loadtests.simulate.trace import open_trace

P95 = 115.0
"""Maximum p95 latency in ms of a handler of 100 ms (Knative's `load-test`: 100 to 115)."""
SLOWEST = 10_000.0
"""Maximum latency in ms, including starts of replicas (Knative's `load-test`)."""
ROLLOUT = 10.0
"""Maximum growth of the p95 latency in ms while a version is replaced."""
LAST = 1.0
"""Seconds at the end of a rollout in which the new version has all the traffic."""
SCALING: Mapping[str, object] = {"maxReplicas": 4, "scaleTarget": 10, "containerConcurrency": 40}
"""Settings for which the peaks of the load need more than one replica."""


@dataclass(frozen=True, slots=True)
class Size:
    """Duration of a load in seconds, and its average or peak rate in requests per second."""

    seconds: float
    rate: float


def steady(target: LoadedPlatform, size: Size) -> ScenarioResult:
    """Apply a constant rate to one replica."""
    target.deploy("steady")
    responses, _ = target.play("steady", arrivals.steady(size.rate, size.seconds))
    target.delete("steady")
    description = f"{size.rate:g} requests per second to one replica."
    return ScenarioResult(
        "steady", description, [*figures_of(responses), _p95(responses)], charts_of(responses), notes_of(responses)
    )


def burst(target: LoadedPlatform, size: Size) -> ScenarioResult:
    """Apply a low rate with three bursts."""
    every = size.seconds / 3
    due = arrivals.bursts(size.rate / 10, size.rate, size.seconds, every, every / 4)
    description = f"{size.rate / 10:g} requests per second, and {size.rate:g} in the last quarter of each {every:g} s."
    return _scaled(target, "burst", description, due)


def diurnal(target: LoadedPlatform, size: Size) -> ScenarioResult:
    """Apply the load of two simulated days."""
    due = arrivals.diurnal(size.rate / 20, size.rate, size.seconds, days=2)
    description = (
        f"Two days of {size.seconds / 2:g} s: {size.rate / 20:g} requests per second at night, {size.rate:g} at noon."
    )
    return _scaled(target, "diurnal", description, due)


def trace(target: LoadedPlatform, size: Size) -> ScenarioResult:
    """Replay a recorded trace to a model at zero."""
    due = arrivals.replay(open_trace("code"), size.seconds, size.rate)
    description = (
        f"The first {len(due)} requests of the public trace `code` of Azure's LLM services, at {size.rate:g} per "
        "second on average. The model is at zero at the start."
    )
    return _scaled(target, "trace", description, due, minReplicas=0, scaleToZeroAfter="1s")


def rollout(target: LoadedPlatform, size: Size) -> ScenarioResult:
    """Replace the version in the middle of a steady load."""
    name, old, new = "rollout", 2.0, 3.0
    target.deploy(name, old)
    replaced = threading.Timer(size.seconds / 2, lambda: target.deploy(name, new))
    with target.load(name, arrivals.steady(size.rate, size.seconds), (old, new)) as generator:
        generator.start_time()
        replaced.start()
        responses = generator.responses()
    replaced.join()
    target.delete(name)
    before, after = responses.between(1.0, size.seconds / 2), responses.between(size.seconds / 2, size.seconds)
    grown = after.quantile(0.95) - before.quantile(0.95)
    last = responses.between(size.seconds - LAST, size.seconds)
    figures = [
        *figures_of(responses),
        Figure("growth of p95 while the version is replaced", grown, "ms", ROLLOUT),
        Figure(
            "responses of the new version at the end", 100.0 * float((last.which == 1).mean()), "%", 100.0, least=True
        ),
    ]
    description = (
        f"{size.rate:g} requests per second to one replica. A new version follows after {size.seconds / 2:g} s."
    )
    return ScenarioResult(name, description, figures, charts_of(responses), notes_of(responses))


def _scaled(target: LoadedPlatform, name: str, description: str, due: FloatArray, **spec: object) -> ScenarioResult:
    """Apply a load that needs several replicas at its peaks."""
    target.deploy(name, 2.0, **SCALING, **spec)
    if spec.get("minReplicas") == 0:
        target.until(lambda: not target.platform.pods(name))
    responses, sampler = target.play(name, due)
    target.delete(name)
    slowest = Figure("latency, maximum, starts included", responses.quantile(1.0), "ms", SLOWEST)
    figures = [*figures_of(responses)[:-1], slowest]
    charts = [*charts_of(responses), replicas_chart(sampler.since(responses.began))]
    return ScenarioResult(name, description, figures, charts, notes_of(responses))


def _p95(responses: Responses) -> Figure:
    return Figure(f"latency of a {1000 * HANDLER:g} ms handler, p95", responses.quantile(0.95), "ms", P95)


SCENARIOS: Mapping[str, tuple[Callable[[LoadedPlatform, Size], ScenarioResult], Size]] = {
    "steady": (steady, Size(30.0, 200.0)),
    "burst": (burst, Size(45.0, 150.0)),
    "diurnal": (diurnal, Size(60.0, 150.0)),
    "trace": (trace, Size(45.0, 40.0)),
    "rollout": (rollout, Size(30.0, 200.0)),
    "chaos": (lambda target, size: chaos(target, size.rate), Size(0.0, 100.0)),
    "gateway": (lambda target, size: gateway(target, size.seconds, size.rate), Size(8.0, 1000.0)),
}
"""The scenarios in order, with their duration and rate on two cores."""
