"""Claims to replicas with GPUs: the wanted number, the GPUs of one replica, and the granted number. Values only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import Any, Literal, NamedTuple

from autoscaler.gpu.units import Amounts

Kind = Literal["serving", "pool", "training"]


class Band(IntEnum):
    """The order in which wants are granted; a lower band is complete before a higher one gets anything."""

    FLOOR = 0
    """Minimum replicas, guarantees of tenants, and the minimum of training jobs that run."""
    SERVING = 1
    POOL = 2
    MINIMUM = 3
    """The minimum of training jobs that wait, all Pods or none."""
    GROWTH = 4
    """Replicas of elastic training jobs beyond their minimum."""


@dataclass(frozen=True, slots=True)
class Shape:
    """The GPUs of one replica: `pods` Pods with `units` of the resource each, each on any node.

    `types` are the allowed types of GPU, best first; empty allows all. Node selector and tolerations are the Pod's.
    `part`: the Pod has a part of one GPU, and `units` are thousandths of it.
    """

    resource: str
    units: int
    pods: int = 1
    types: tuple[str, ...] = ()
    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Mapping[str, Any], ...] = ()
    part: bool = False

    @property
    def amount(self) -> int:
        """Units of one replica, all its Pods together."""
        return self.units * self.pods


_BANDS: Mapping[Kind, Band] = {"serving": Band.SERVING, "pool": Band.POOL, "training": Band.GROWTH}


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim of a revision, a warm pool or a training job.

    name      unique, for messages: `Model default/chat`, `Job team/train`
    tenant    its namespace
    want      replicas that it wants now; for training, its maximum
    least     replicas below which it is never set: `minReplicas`, or the minimum of a training job
    held      replicas that have a node, by the node; the node of a replica of several Pods is that of the first
    priority  0 to 1000; a higher one is served first within its band
    weight    its share relative to others of its tenant
    since     when it began to wait (seconds); waiting training jobs start oldest first
    leaving   replicas of `held` that are being deleted, by the node: none of them can be kept
    running   training: its minimum runs or was granted, so it is a floor now
    """

    name: str
    tenant: str
    kind: Kind
    shape: Shape
    want: int
    least: int = 0
    held: Mapping[str, int] = field(default_factory=dict)
    priority: int = 0
    weight: float = 1.0
    since: float = 0.0
    running: bool = True
    leaving: Mapping[str, int] = field(default_factory=dict)

    @property
    def holds(self) -> int:
        """Replicas that have a node."""
        return sum(self.held.values())

    @property
    def stays(self) -> Mapping[str, int]:
        """Replicas that have a node and are not being deleted, by the node."""
        if not self.leaving:
            return self.held
        return {node: rest for node, count in self.held.items() if (rest := count - self.leaving.get(node, 0)) > 0}

    @property
    def band(self) -> Band:
        """The band of what it wants beyond `least`."""
        return _BANDS[self.kind]


@dataclass(frozen=True, slots=True)
class Place:
    """The units of one resource on one node that claims may hold, together with those that they hold now.

    `open`: the node takes new Pods. Replicas on a closed node stay there.
    """

    node: str
    resource: str
    units: int
    type: str = ""
    open: bool = True
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Mapping[str, Any], ...] = ()


class Rule(StrEnum):
    """Why a claim was granted its number of replicas."""

    ALL = "Granted"
    """It gets all that it wants."""
    SHORT = "NotEnoughGPUs"
    """Other claims before it hold the units or were granted them."""
    LIMIT = "TenantLimit"
    GANG = "MinimumDoesNotFit"
    """A training job waits until its minimum fits as a whole."""
    SETTLING = "Settling"
    """Free units are not given to training yet."""
    NONE_FITS = "NoSuchGPU"
    """No node has such GPUs, or none has as many as one Pod takes."""


class Gift(NamedTuple):
    """Units that another claim gives back for this one."""

    giver: str
    units: float


class Grant(NamedTuple):
    """The replicas that a claim may have, and why.

    `total` are the units of all places that fit the claim, `others` those that other claims hold or were granted.
    """

    replicas: int
    want: int
    rule: Rule
    resource: str
    total: float = 0
    others: float = 0
    gifts: tuple[Gift, ...] = ()

    @property
    def message(self) -> str:
        """The grant as one line of text."""
        replicas = f"{self.want} replica{'' if self.want == 1 else 's'}"
        if self.rule is Rule.ALL:
            text = f"gets {self.replicas} of {replicas} with {self.resource}"
        else:
            text = f"wants {replicas} and gets {self.replicas}: {_TEXTS[self.rule]}".format(
                resource=self.resource, total=self.total, others=self.others
            )
        gifts = ", ".join(f"{gift.giver} gives {gift.units:g}" for gift in self.gifts)
        return f"{text}; {gifts}" if gifts else text


_TEXTS: Mapping[Rule, str] = {
    Rule.SHORT: "{others:g} of {total:g} {resource} are held by others before it",
    Rule.LIMIT: "the limit of its namespace for {resource} is reached",
    Rule.GANG: "its minimum does not fit into the {total:g} {resource}, of which others hold {others:g}",
    Rule.SETTLING: "free {resource} are given to training after a while without changes",
    Rule.NONE_FITS: "no node has the {resource} that one Pod takes",
}


@dataclass(frozen=True, slots=True)
class Tenant:
    """The rights of a namespace: its weight, the units that it can always take back, and the most that it may hold."""

    weight: float = 1.0
    guarantee: Amounts = field(default_factory=dict)
    limit: Amounts = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AllocationSettings:
    """Settings of the allocator.

    tenants      by namespace; others have `Tenant()`
    prices       of a unit, by type or resource, as the currency of shares; 1 if absent
    reserve      units by resource that only serving takes
    settle       seconds in which units must have been free before training grows into them
    min_runtime  seconds for which growth is not taken back for the growth of another job
    start_pause  seconds after a reclaim in which training does not grow
    patience     seconds after which a training job that waits is not passed by younger ones
    """

    tenants: Mapping[str, Tenant] = field(default_factory=dict)
    prices: Mapping[str, float] = field(default_factory=dict)
    reserve: Amounts = field(default_factory=dict)
    settle: float = 10.0
    min_runtime: float = 60.0
    start_pause: float = 10.0
    patience: float = 300.0

    def tenant(self, namespace: str) -> Tenant:
        """Return the rights of a namespace."""
        return self.tenants.get(namespace, DEFAULT_TENANT)


DEFAULT_TENANT = Tenant()
