"""The policies that are compared, their load, and their outcomes. Imports neither Ray nor our policy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, NamedTuple

CALLERS: Final = 16  # each sends its next request after the last answer
SECONDS: Final = 20.0  # of load
SERVICE: Final = 0.25  # s of one request
SLOTS: Final = 4  # requests of one replica at the same time
MOST: Final = 5  # replicas
FRESH: Final = MappingProxyType({"metrics_interval_s": 0.5, "look_back_period_s": 2.0})
"""Ray's measurements, as fresh as is useful; Ray's defaults are 10 s and 30 s."""


@dataclass(frozen=True, slots=True)
class RayPolicy:
    """One policy: arguments of Ray's `AutoscalingConfig`, and our class with its arguments.

    `wait`: maximum seconds after the load until one replica is left.
    """

    name: str
    what: str
    wait: float
    autoscaling: Mapping[str, Any] = field(default_factory=dict)
    function: str = ""
    function_arguments: Mapping[str, Any] = field(default_factory=dict)


POLICIES: Final = (
    RayPolicy("default", "Ray's defaults", 0.0),
    RayPolicy(
        "tuned", "Ray, tuned by hand", 120.0,
        {**FRESH, "upscale_delay_s": 0.0, "downscale_delay_s": 20.0, "target_ongoing_requests": 0.7 * SLOTS},
    ),
    RayPolicy(
        "knodel", "`knodel.ray:Policy`", 660.0, {**FRESH, "upscale_delay_s": 0.0, "downscale_delay_s": 0.0},
        "knodel.ray:Policy", {"target": SLOTS},
    ),
)  # fmt: skip


class Outcome(NamedTuple):
    """What callers and operators notice. Seconds are from the start of the load; `back` from its end. None: never."""

    policy: str
    asked: float | None  # first decision for more than one replica
    full: float | None  # all replicas run
    answered: int
    p50: float
    p95: float
    back: float | None  # one replica is left


def policy_named(name: str) -> RayPolicy:
    """Return the policy of this name. Raises StopIteration."""
    return next(policy for policy in POLICIES if policy.name == name)


def table(outcomes: Iterable[Outcome]) -> str:
    """Return the outcomes as a table in Markdown."""
    lines = [
        f"| policy | first decision | {MOST} replicas | answered | p50 / p95 | one replica again, after the load |",
        "|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {policy_named(one.policy).what} | {_seconds(one.asked)} | {_seconds(one.full)} | {one.answered} | "
        f"{one.p50:.2f} / {one.p95:.2f} s | {_seconds(one.back)} |"
        for one in outcomes
    ]
    return "\n".join(lines)


def _seconds(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f} s"
