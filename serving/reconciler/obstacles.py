"""Why a Model is refused though its spec is right by itself: another Model has the name, or a flag of Knative's is off.

Where a door sees all Models it refuses the first kind; where none does, as on Kubernetes, the controller says it on the
Model that came later, and changes nothing else of it. A Model is later by creationTimestamp, then by name.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from clusters.informer import Informer
from clusters.objects import Key, Object, key_of, name_of, namespace_of
from serving.apis.references import claims, collisions
from serving.resources.knative_flags import Flag

INDEX = "knodel.claims"
"""Index of Models by what they claim: hosts and names."""


@dataclass(frozen=True, slots=True)
class Obstacle:
    """What stands in the way, and what helps."""

    reason: str
    message: str


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


def _indexed(model: Object) -> Iterable[str]:
    return [f"{namespace_of(model)}/{claim}" for claim in claims(model)]


def _age(model: Object) -> tuple[str, str]:
    return (str(model["metadata"].get("creationTimestamp", "")), name_of(model))
