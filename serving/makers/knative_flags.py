"""Knative's flags that Knodel's features can need: what a cluster's administrator decides, and where. Pure.

A flag is a key of a ConfigMap of Knative's; where the key is absent Knative's own default holds (knative/serving
`pkg/apis/config/{features,defaults}.go`, `pkg/autoscaler/config`; knative.dev/pkg `observability/metrics`). Only
features that exist are listed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from serving.types.faults import claim_of
from serving.types.model import Model

NAMESPACE = "knative-serving"


@dataclass(frozen=True, slots=True)
class Flag:
    """One key of one ConfigMap; `wanted` is what to set, `default` what Knative takes where nothing stands.

    `also` are other values that do, in lower case as Knative compares them. `restarts`: the Deployment of Knative's
    that reads it only when it starts. `chosen`: a value that somebody set instead is theirs, and not overwritten.
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
        """Whether the ConfigMap with this `data` has it on."""
        return data.get(self.key, self.default).strip().lower() in (self.wanted, *self.also)

    @property
    def remedy(self) -> str:
        """What an administrator is told to do."""
        return f'set {self.key} to "{self.wanted}" in ConfigMap {self.configmap} of namespace {self.namespace}' + (
            f" and restart its Deployment {self.restarts}" if self.restarts else ""
        )

    def may_be_set(self, data: Mapping[str, str]) -> bool:
        """Whether nobody has decided otherwise."""
        return not self.chosen or data.get(self.key, self.default).strip() in ("", self.default)


TAG_HEADER = Flag(
    "config-features",
    NAMESPACE,
    "tag-header-based-routing",
    "enabled",
    "disabled",
    "tags in spec.traffic, and spec.rollout, whose judge counts by its headers what the split sent",
)
EMPTY_DIR = Flag(
    "config-features",
    NAMESPACE,
    "kubernetes.podspec-volumes-emptydir",
    "enabled",
    "enabled",
    "the model server's scratch folder, the only one that it may write to",
    also=("allowed",),
)
NO_LIMIT = Flag(
    "config-defaults",
    NAMESPACE,
    "allow-container-concurrency-zero",
    "true",
    "true",
    "spec.containerConcurrency 0, which is no hard limit",
    also=("1", "t"),
)
ACTIVATOR_METRICS = Flag(
    "config-observability",
    NAMESPACE,
    "metrics-protocol",
    "prometheus",
    "none",
    "models at zero: the activators tell of requests that wait",
    restarts="activator",
    chosen=True,
)
ZERO_INITIAL_SCALE = Flag(
    "config-autoscaler",
    NAMESPACE,
    "allow-zero-initial-scale",
    "true",
    "false",
    "warm pools, whose seed is a revision that never had a replica",
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

FLAGS: tuple[Flag, ...] = (TAG_HEADER, EMPTY_DIR, NO_LIMIT, ACTIVATOR_METRICS, ZERO_INITIAL_SCALE, VOLUME_CLAIMS)
"""All of them, in the order in which people read them."""


def flags_needed(model: Model) -> tuple[Flag, ...]:
    """The flags without which Knative would refuse the Model's objects, or leave out what it asks for.

    `ACTIVATOR_METRICS` is none of them: without it a Model keeps a replica. Nor is `ZERO_INITIAL_SCALE`: a WarmPool's.
    """
    needs = {
        TAG_HEADER: model.spec.rollout is not None or any(entry.tag for entry in model.spec.traffic),
        EMPTY_DIR: True,
        NO_LIMIT: model.spec.container_concurrency == 0,
        VOLUME_CLAIMS: bool(claim_of(model.spec.storage_uri)),
    }
    return tuple(flag for flag in FLAGS if needs.get(flag, False))
