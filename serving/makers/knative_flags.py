"""Flags of Knative that features of Knodel need. A cluster's administrator sets them. Pure.

A flag is a key in one of Knative's ConfigMaps. Without the key, Knative's default applies (knative/serving
`pkg/apis/config/{features,defaults}.go`, `pkg/autoscaler/config`; knative.dev/pkg `observability/metrics`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from serving.types.model import Model, claims_of, sizes_of
from serving.types.settings.settings import ServerSettings

NAMESPACE = "knative-serving"


@dataclass(frozen=True, slots=True)
class Flag:
    """One key of a ConfigMap; `wanted` is the value to set, `default` the one that Knative uses without the key.

    `also` are other values with the same effect, in lower case as Knative compares them. `restarts` is the Deployment
    of Knative that reads the flag only when it starts. `chosen`: a value that an administrator set is not overwritten.
    """

    configmap: str
    namespace: str
    key: str
    wanted: str
    default: str
    feature: str
    also: tuple[str, ...] = ()
    restarts: str = ""
    chosen: bool = False

    def is_on(self, data: Mapping[str, str]) -> bool:
        """Return whether the flag is on in a ConfigMap with this `data`."""
        return data.get(self.key, self.default).strip().lower() in (self.wanted, *self.also)

    @property
    def remedy(self) -> str:
        """Return the instruction for an administrator."""
        return f'set {self.key} to "{self.wanted}" in ConfigMap {self.configmap} of namespace {self.namespace}' + (
            f" and restart its Deployment {self.restarts}" if self.restarts else ""
        )

    def may_be_set(self, data: Mapping[str, str]) -> bool:
        """Return whether the flag may be set: no administrator chose another value."""
        return not self.chosen or data.get(self.key, self.default).strip() in ("", self.default)


TAG_HEADER = Flag(
    "config-features",
    NAMESPACE,
    "tag-header-based-routing",
    "enabled",
    "disabled",
    "tags in spec.traffic, and spec.rollout, whose judge counts requests of the split by its headers",
)
EMPTY_DIR = Flag(
    "config-features",
    NAMESPACE,
    "kubernetes.podspec-volumes-emptydir",
    "enabled",
    "enabled",
    "the model server's scratch folder, its only writable one",
    also=("allowed",),
)
NO_LIMIT = Flag(
    "config-defaults",
    NAMESPACE,
    "allow-container-concurrency-zero",
    "true",
    "true",
    "spec.containerConcurrency 0, which means no hard limit",
    also=("1", "t"),
)
ACTIVATOR_METRICS = Flag(
    "config-observability",
    NAMESPACE,
    "metrics-protocol",
    "prometheus",
    "none",
    "models at zero: the activators report waiting requests",
    restarts="activator",
    chosen=True,
)
ZERO_INITIAL_SCALE = Flag(
    "config-autoscaler",
    NAMESPACE,
    "allow-zero-initial-scale",
    "true",
    "false",
    "warm pools, whose seed is a revision without replicas",
    also=("1", "t"),
)
VOLUME_CLAIMS = Flag(
    "config-features",
    NAMESPACE,
    "kubernetes.podspec-persistent-volume-claim",
    "enabled",
    "disabled",
    "models on volume claims (pvc://)",
    also=("allowed",),
)
AFFINITY = Flag(
    "config-features",
    NAMESPACE,
    "kubernetes.podspec-affinity",
    "enabled",
    "disabled",
    "resources.gpuTypes, which select nodes",
    also=("allowed",),
)
PRIORITY_CLASS = Flag(
    "config-features",
    NAMESPACE,
    "kubernetes.podspec-priorityclassname",
    "enabled",
    "disabled",
    "server.gpuPriorityClass, by which models take GPUs from training",
    also=("allowed",),
)
SCHEDULER_NAME = Flag(
    "config-features",
    NAMESPACE,
    "kubernetes.podspec-schedulername",
    "enabled",
    "disabled",
    "server.gpuScheduler, the scheduler of Pods with GPUs",
    also=("allowed",),
)
FLAGS: tuple[Flag, ...] = (TAG_HEADER, EMPTY_DIR, NO_LIMIT, ACTIVATOR_METRICS, ZERO_INITIAL_SCALE, VOLUME_CLAIMS)
"""All flags, in the order in which they are shown."""
GPU_FLAGS: tuple[Flag, ...] = (AFFINITY, PRIORITY_CLASS, SCHEDULER_NAME)
"""Flags that only clusters with GPUs need."""


def flags_needed(model: Model, server: ServerSettings) -> tuple[Flag, ...]:
    """Return the flags without which Knative would refuse the Model's objects, or ignore parts of them.

    `ACTIVATOR_METRICS` is not required: without it a Model keeps a replica. Only WarmPools need `ZERO_INITIAL_SCALE`.
    """
    sizes = sizes_of(model.spec)
    with_gpus = any(resources.gpu for resources in sizes)
    needs = {
        TAG_HEADER: model.spec.rollout is not None or any(entry.tag for entry in model.spec.traffic),
        EMPTY_DIR: True,
        NO_LIMIT: model.spec.container_concurrency == 0,
        VOLUME_CLAIMS: bool(claims_of(model.spec)),
        PRIORITY_CLASS: with_gpus and bool(server.gpu_priority_class),
        SCHEDULER_NAME: with_gpus and bool(server.gpu_scheduler),
        AFFINITY: any(resources.gpu_types for resources in sizes),
    }
    return tuple(flag for flag in (*FLAGS, *GPU_FLAGS) if needs.get(flag, False))
