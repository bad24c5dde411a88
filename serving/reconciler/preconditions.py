"""Why a Model is refused though its spec is right by itself: another Model has the name, a flag of Knative's is off,
the namespace does not allow code, or the platform has no such runtime, or no Prometheus for its metrics.

Where a door sees all Models it refuses the first kind; where none does, as on Kubernetes, the controller says it on the
Model that came later, and changes nothing else of it. A Model is later by creationTimestamp, then by name.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from clusters.base.objects import Key, Object, key_of, name_of, namespace_of
from clusters.runtime.informer import Informer
from serving.makers.knative_flags import Flag
from serving.types.code import allows_code, refusal, runs_code
from serving.types.model import Model
from serving.types.references import claims, collisions
from serving.types.rollout import metrics_fault
from serving.types.settings.runtimes import Runtime, runtime_fault

INDEX = "knodel.claims"
"""Index of Models by what they claim: hosts and names."""


@dataclass(frozen=True, slots=True)
class Obstacle:
    """What stands in the way, and what helps; `of_new`: in the way of a version alone that is not made yet."""

    reason: str
    message: str
    of_new: bool = False


def prepare(models: Informer) -> None:
    """Add the index, before the informer runs."""
    models.add_index(INDEX, _indexed)


def rivals(models: Informer, model: Object) -> list[Object]:
    """The other Models that claim something that this one claims, each once."""
    found = {key_of(other): other for claim in _indexed(model) for other in models.indexed(INDEX, claim)}
    return [other for key, other in found.items() if key != key_of(model)]


def rival_keys(models: Informer, model: Object) -> list[Key]:
    """Whom a change of this Model concerns."""
    return [key_of(other) for other in rivals(models, model)]


def collision(models: Informer, model: Object) -> Obstacle | None:
    """What an earlier Model has already."""
    earlier = [other for other in rivals(models, model) if _age(other) < _age(model)]
    faults = collisions(model, earlier)
    return Obstacle("Collision", "; ".join(str(fault) for fault in faults)) if faults else None


def disabled(flags: Sequence[Flag]) -> Obstacle | None:
    """The flags that the Model needs and that are off."""
    if not flags:
        return None
    said = "; ".join(f"{flag.feature}: {flag.remedy}" for flag in flags)
    return Obstacle("KnativeFeatureDisabled", f"Knative's configuration does not allow {said}")


def forbidden_code(model_format: str, name: str, namespace: Object | None) -> Obstacle | None:
    """The format, in the namespace called `name`, when it runs code of the artifact and the namespace forbids that."""
    if not runs_code(model_format) or allows_code(namespace):
        return None
    return Obstacle("CodeNotAllowed", f"modelFormat: {refusal(model_format, name)}")


def unknown_runtime(runtimes: tuple[Runtime, ...], name: str) -> Obstacle | None:
    """The runtime's name, when the platform has none of it."""
    fault = runtime_fault(runtimes, name)
    return Obstacle("UnknownRuntime", f"runtime.name: {fault}") if fault else None


def unanswered_metrics(prometheus_url: str, model: Model) -> Obstacle | None:
    """The judge's metrics, when the platform has no Prometheus; a rollout that has begun is not left half-way."""
    rollout = model.spec.rollout
    fault = metrics_fault(rollout.judge.metrics, prometheus_url) if rollout is not None else ""
    return Obstacle("NoPrometheus", f"rollout.judge.metrics: {fault}", of_new=True) if fault else None


def _indexed(model: Object) -> Iterable[str]:
    return [f"{namespace_of(model)}/{claim}" for claim in claims(model)]


def _age(model: Object) -> tuple[str, str]:
    return (str(model["metadata"].get("creationTimestamp", "")), name_of(model))
