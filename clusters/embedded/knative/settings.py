"""Settings of the stand-in: what on a real cluster stands in Knative's ConfigMaps, with Knative's defaults."""

from __future__ import annotations

from dataclasses import dataclass, field

HOUR = 3600.0  # s


@dataclass(frozen=True, slots=True)
class RevisionGC:
    """config-gc. A Revision that no Route leads to is collected when it is old, and when there are too many.

    None for a time or for the maximum disables that rule.
    """

    retain_since_create: float | None = 48 * HOUR
    """s after its creation (`retain-since-create-time`)."""
    retain_since_active: float | None = 15 * HOUR
    """s after traffic last left it (`retain-since-last-active-time`)."""
    min_non_active: int = 20
    """Always kept (`min-non-active-revisions`)."""
    max_non_active: int | None = 1000
    """Never more, however young (`max-non-active-revisions`)."""


@dataclass(frozen=True, slots=True)
class Settings:
    """config-autoscaler, config-deployment and config-gc, as far as the stand-in reads them."""

    autoscaler_class: str = "kpa.autoscaling.knative.dev"
    """Class of a PodAutoscaler whose Revision names none (`pod-autoscaler-class`)."""
    initial_scale: int = 1
    """Replicas that a new Revision must reach to be ready (`initial-scale`)."""
    progress_deadline: int = 600
    """s without progress after which a Deployment counts as failed (`progress-deadline`)."""
    gc: RevisionGC = field(default_factory=RevisionGC)
