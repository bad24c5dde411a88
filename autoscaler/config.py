"""Settings of the autoscaler, in groups. Each field declares its default and its range.

These settings hold for a whole installation; `types.Policy` holds what differs between revisions. The text below each
field gives its unit and the reason for its default. Knative's counterpart is the ConfigMap `config-autoscaler`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from typing import Any

from clusters.base.errors import FieldError, KnodelError


class InvalidSettings(KnodelError):
    """Raised for settings that are out of range; the message lists all of them."""


def _setting(default: Any, least: float | str, most: float | str) -> Any:
    """Declare a field with a default and an inclusive range. A bound may be the name of another field of the group."""
    return field(default=default, metadata={"range": (least, most)})


@dataclass(frozen=True, slots=True)
class DecisionSettings:
    """Parameters of the scaling decision."""

    panic_window_share: float = _setting(0.1, 0.01, 1.0)
    """Length of the panic window as a share of the stable window. Knative's 10 %: 6 s of 60 s."""

    least_panic_window: float = _setting(3.0, 0.05, 60.0)
    """Seconds; minimum length of the panic window, capped at the stable window. Replicas are read once a second and not
    at the same instant, so a window of one reading per replica over- or underestimates the load; the peak hold would
    then keep the overestimate."""

    panic_threshold: float = _setting(2.0, 1.1, 1_000.0)
    """Panic starts when the panic window needs this many times the ready replicas. Knative's 200 %."""

    max_up_rate: float = _setting(1_000.0, 1.1, 1e6)
    """Maximum growth in one decision, as a multiple of the ready replicas. Knative's value: it limits the effect of
    faulty readings and does not restrict real bursts."""

    max_down_rate: float = _setting(2.0, 1.1, 1e6)
    """Maximum reduction in one tick, as a divisor of the replicas. Knative's value: a faulty reading removes at most
    half of them.
    """

    peak_utilization: float = _setting(0.9, 0.01, 1.0)
    """Minimum share of its slots that a replica uses in a peak: for queued requests and for the panic window. The
    policy's own utilization reserves room for peaks above an average; a peak itself needs no such reserve."""

    tolerance: float = _setting(0.05, 0.0, 0.5)
    """Replicas. Work for 4.04 replicas counts as work for 4, because scrape times vary by some milliseconds a second.
    """

    enough_coverage: float = _setting(0.5, 0.0, 1.0)
    """Share of the stable window that readings must cover before any scale-down. Knative requires one sample; half a
    window tolerates a failed scrape but not a source that stopped answering."""

    assumed_start_time: float = _setting(10.0, 1e-2, 3_600.0)
    """Seconds from the request for a replica to its readiness, until a start of the revision was measured. The value
    lies between a warm start (0.1 s) and a large model on a GPU (120 s)."""

    drain_within: float = _setting(1.0, 1e-3, 3_600.0)
    """Seconds within which the replicas should finish the queued requests. A queue of short requests needs no replica
    of its own: it is empty before another replica has started.
    """

    hold_starts: float = _setting(12.0, 0.0, 1_000.0)
    """How long the peak demand is held, in start times. An idle replica costs its seconds; a missing one costs every
    waiting request a start."""

    hold_least: float = _setting(30.0, 1.0, "hold_most")
    """Seconds; minimum hold. Shorter holds would restart even fast-starting replicas too often."""

    hold_most: float = _setting(600.0, 1.0, 86_400.0)
    """Seconds; maximum hold. One burst must not keep a slow-starting revision large for hours."""

    least_idle: float = _setting(60.0, 1.0, 86_400.0)
    """Seconds; minimum idle time before the last replica is removed, for policies with `scaleToZeroAfter: auto`."""

    near_objective: float = _setting(0.8, 0.1, 1.0)
    """Share of the latency objective above which no replica is removed: with fewer replicas, responses would miss it.
    """

    enough_answers: float = _setting(20.0, 1.0, 1e6)
    """Minimum number of responses for a meaningful latency quantile."""

    busy_share: float = _setting(0.5, 0.0, 1.0)
    """Minimum share of busy slots at which more replicas are expected to reduce latency."""

    most_slow_step: float = _setting(2.0, 1.01, 100.0)
    """Maximum growth for a missed latency objective within one start time, as a multiple of the ready replicas."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """Parameters of the measurement of work."""

    tick: float = _setting(1.0, 0.05, 60.0)
    """Seconds between two scrapes and decisions of revisions with replicas. Knative scrapes every 1 s and decides every
    2 s; here each scrape is followed by a decision. Wake-ups from zero do not wait for a tick."""

    timeout: float = _setting(0.8, 0.01, "tick")
    """Seconds for one scrape: less than a tick, so that an unresponsive Pod never delays the tick of others."""

    max_bytes: int = _setting(4_096, 256, 1_048_576)
    """Maximum bytes of one response; ours has about 300. Knative reads at most 336 (CVE-2023-48713)."""

    max_pods: int = _setting(16, 1, 1_000)
    """Maximum Pods scraped per revision and tick, as in Knative (`sample_size.go`)."""

    claim_limit: float = _setting(16.0, 1.0, 1e6)
    """Maximum load accepted from one replica, as a multiple of its slots. Its own queue is bounded, so a higher value
    is faulty.
    """


@dataclass(frozen=True, slots=True)
class Zero:
    """Parameters of the removal of the last replica."""

    enabled: bool = True
    """Whether a reachable revision may have no replica (Knative's enable-scale-to-zero). Requires that waiting requests
    are detected."""

    grace: float = _setting(0.0, 0.0, 3_600.0)
    """Seconds between the proof that the activator is in the path and scale 0. Zero where the proof is exact (the
    embedded cluster sets the condition after Envoy confirmed the route). Knative's scale-to-zero-grace-period is 30 s.
    """

    recheck: float = _setting(1.0, 0.05, 60.0)
    """Seconds until Pods are checked for idleness again, after one did not answer."""

    progress_deadline: float = _setting(600.0, 1.0, 86_400.0)
    """Seconds for a revision to reach its initial scale, unless its annotation sets another value. Knative's default.
    """

    diagnosis: float = _setting(10.0, 0.0, 3_600.0)
    """Seconds after that deadline until the replicas are removed. The Deployment reports its failure at the deadline,
    and the Revision reads the cause from the Pods only then. Knative's activation timeout buffer, which is 30 s.
    """


@dataclass(frozen=True, slots=True)
class Activators:
    """Parameters of the polling of Knative's activators (`metrics/activators.py`)."""

    poll: float = _setting(0.025, 0.005, 10.0)
    """Seconds between two polls while a revision is at zero; a poll takes 0.7 ms."""

    idle_poll: float = _setting(0.25, 0.005, 60.0)
    """Seconds between two polls while no revision is at zero."""

    timeout: float = _setting(1.0, 0.01, 10.0)
    """Seconds for one response. Only the last check before zero waits for a slow activator. On a machine short of CPU a
    response takes half a second, and a retry would delay it further."""

    max_bytes: int = _setting(4_194_304, 1_024, 1 << 26)
    """Maximum bytes of one response: 400 to 700 per revision, of which an activator distinguishes 2 000 since its
    start."""

    unreachable_after: float = _setting(30.0, 0.1, 3_600.0)
    """Seconds without a response from a ready activator, after which no reachable revision may be at zero."""


@dataclass(frozen=True, slots=True)
class WarmStart:
    """Parameters of the claims and of the upkeep of warm-pool members."""

    assign_timeout: float = _setting(1.0, 0.01, 60.0)
    """Seconds for a member to acknowledge its model: normally 3 ms, much more on an overloaded node. Afterwards another
    member is tried, or a cold start."""

    reap_after: float = _setting(10.0, 0.1, 600.0)
    """Seconds after which an abandoned claim is completed or undone."""

    resync: float = _setting(5.0, 0.05, 600.0)
    """Seconds between two passes over a pool without events."""

    create_burst: int = _setting(4, 1, 100)
    """Maximum members of one pool that start at the same time: a refill must not slow down serving replicas."""


@dataclass(frozen=True, slots=True)
class Records:
    """Parameters of the records that users read."""

    kept_decisions: int = _setting(20, 1, 100)
    """Decisions kept in the annotation: 20 take about 8 kB of the 256 kB that all annotations may have."""

    kept_starts: int = _setting(10, 1, 100)
    """Starts of replicas kept in the annotation, about 400 bytes each."""

    kept_inputs: int = _setting(8, 1, 100)
    """Decisions kept with their inputs for replay, about 800 bytes each."""

    usage_interval: float = _setting(60.0, 1.0, 3_600.0)
    """Seconds between two writes of a revision's usage: bills need no finer resolution."""

    write_interval: float = _setting(1.0, 0.0, 60.0)
    """Seconds between two writes of a PodAutoscaler's decisions and starts, which are only displayed."""


@dataclass(frozen=True, slots=True)
class AutoscalerSettings:
    """All settings of the autoscaler. Raises InvalidSettings when one is out of range."""

    scaling: DecisionSettings = field(default_factory=DecisionSettings)
    sampling: Sampling = field(default_factory=Sampling)
    zero: Zero = field(default_factory=Zero)
    records: Records = field(default_factory=Records)
    activators: Activators = field(default_factory=Activators)
    warm: WarmStart = field(default_factory=WarmStart)
    workers: int = _setting(16, 1, 64)
    """Concurrent reconcile passes: each waits for the cluster most of the time."""

    def __post_init__(self) -> None:
        if errors := list(_errors(self)):
            raise InvalidSettings("invalid autoscaler settings: " + "; ".join(str(error) for error in errors))


def _errors(group: Any, prefix: str = "") -> Iterator[FieldError]:
    """Yield an error for each setting of the group, or of a group within it, that is out of its range."""
    for one in fields(group):
        value = getattr(group, one.name)
        if "range" in one.metadata:
            least, most = (
                getattr(group, bound) if isinstance(bound, str) else bound for bound in one.metadata["range"]
            )
            if not least <= value <= most:
                yield FieldError(f"{prefix}{one.name}", f"must be from {least:g} to {most:g}, not {value:g}")
        elif not isinstance(value, bool):
            yield from _errors(value, f"{prefix}{one.name}.")
