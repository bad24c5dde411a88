"""Claims for GPUs: what a Revision, a warm pool or a training job wants, holds and may not go below. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Literal


class Band(IntEnum):
    """The order in which claims get GPUs. Floors (`Claim.least`) come before all bands."""

    SERVING = 1
    POOL = 2
    MINIMUM = 3
    GROWTH = 4


@dataclass(frozen=True, slots=True)
class Shape:
    """What one replica takes: `units` of a resource for each of its Pods, which may be on several nodes."""

    resource: str
    units: int
    pods: int = 1
    types: tuple[str, ...] = ()
    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class Claim:
    """The replicas that somebody wants."""

    name: str
    tenant: str
    kind: Literal["serving", "pool", "training"]
    shape: Shape
    want: int
    least: int = 0
    held: Mapping[str, int] = field(default_factory=dict)
    priority: int = 0
    weight: float = 1.0
    since: float = 0.0
    running: bool = True
    elastic: bool = True
