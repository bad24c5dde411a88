"""Check what a valid Model needs from the cluster and the platform, before anything is created for it.

Another Model may use its name, a flag of Knative may be off, the namespace may not allow code, or the platform may lack
its runtime or a Prometheus for its metrics. On the embedded cluster, admission refuses a Model with a name in use. On
Kubernetes admission does not see all Models: there the controller reports it on the later Model, and writes nothing
else for it. A Model is later by creationTimestamp, then by name.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from clusters.base.objects import Key, Object, key_of, name_of, namespace_of
from clusters.runtime.informer import Informer
from serving.makers.knative_flags import Flag
from serving.types.code import allows_code, refusal, runs_code
from serving.types.model import Model
from serving.types.references import claims, collisions
from serving.types.resources import Resources
from serving.types.rollout import metrics_fault
from serving.types.settings.runtimes import Runtime, runtime_fault

WHOLE_UNITS: Final = (
    "Kubernetes gives Pods whole units of a resource: set gpu: 1 and gpuResource to that of a time slice, MPS or MIG "
    "partition, such as nvidia.com/gpu.shared or nvidia.com/mig-1g.10gb, which the nodes must have"
)
INDEX = "knodel.claims"
"""Index of Models by their claims: hosts and names."""


@dataclass(frozen=True, slots=True)
class BlockedReason:
    """Why a Model is blocked, with the remedy. `new_only`: it blocks only versions that do not exist yet."""

    reason: str
    message: str
    new_only: bool = False


def add_claims_index(models: Informer) -> None:
    """Add the index of claims. Call it before the informer runs."""
    models.add_index(INDEX, _indexed)


def rivals(models: Informer, model: Object) -> list[Object]:
    """Return the other Models with a claim in common with this one, each once."""
    found = {key_of(other): other for claim in _indexed(model) for other in models.indexed(INDEX, claim)}
    return [other for key, other in found.items() if key != key_of(model)]


def rival_keys(models: Informer, model: Object) -> list[Key]:
    """Return the keys of the Models that a change of this Model may unblock."""
    return [key_of(other) for other in rivals(models, model)]


def collision(models: Informer, model: Object) -> BlockedReason | None:
    """Return the claims that an earlier Model has already; None without any."""
    earlier = [other for other in rivals(models, model) if _age(other) < _age(model)]
    faults = collisions(model, earlier)
    return BlockedReason("Collision", "; ".join(str(fault) for fault in faults)) if faults else None


def disabled_flags(flags: Sequence[Flag]) -> BlockedReason | None:
    """Return the flags of Knative that the Model needs and that are off; None without any."""
    if not flags:
        return None
    features = "; ".join(f"{flag.feature}: {flag.remedy}" for flag in flags)
    return BlockedReason("KnativeFeatureDisabled", f"Knative's configuration does not allow {features}")


def forbidden_code(model_format: str, name: str, namespace: Object | None) -> BlockedReason | None:
    """Return the refusal of a format that runs code, in a namespace (called `name`) that does not allow it."""
    if not runs_code(model_format) or allows_code(namespace):
        return None
    return BlockedReason("CodeNotAllowed", f"modelFormat: {refusal(model_format, name)}")


def unknown_runtime(runtimes: tuple[Runtime, ...], name: str) -> BlockedReason | None:
    """Return the refusal of a runtime that the platform does not have."""
    fault = runtime_fault(runtimes, name)
    return BlockedReason("UnknownRuntime", f"runtime.name: {fault}") if fault else None


def missing_prometheus(prometheus_url: str, model: Model) -> BlockedReason | None:
    """Return the refusal of a judge's metrics without a Prometheus. A rollout that has begun is completed."""
    rollout = model.spec.rollout
    fault = metrics_fault(rollout.judge.metrics, prometheus_url) if rollout is not None else ""
    return BlockedReason("NoPrometheus", f"rollout.judge.metrics: {fault}", new_only=True) if fault else None


def part_of_gpu(sizes: Iterable[Resources], *, supported: bool) -> BlockedReason | None:
    """Return the refusal of `gpuFraction` where a kubelet gives Pods only whole units of a resource."""
    if supported or not any(one.gpu_fraction for one in sizes):
        return None
    return BlockedReason("GpuFractionUnsupported", f"resources.gpuFraction: {WHOLE_UNITS}")


def _indexed(model: Object) -> Iterable[str]:
    return [f"{namespace_of(model)}/{claim}" for claim in claims(model)]


def _age(model: Object) -> tuple[str, str]:
    return (str(model["metadata"].get("creationTimestamp", "")), name_of(model))
