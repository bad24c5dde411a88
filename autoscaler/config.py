"""Settings of the autoscaler, grouped; below each field its unit, and why the default is what it is.

What differs from revision to revision is in `apis.Policy`; this is what holds for the whole installation. Knative's
counterpart is the ConfigMap `config-autoscaler`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from clusters.base.errors import FieldError, KnodelError


class InvalidSettings(KnodelError):
    """A setting is out of its range; the message names all such settings."""


@dataclass(frozen=True, slots=True)
class Scaling:
    """Numbers of the decision itself."""

    panic_window_share: float = 0.1
    """Share of the stable window. Knative's 10 %: of 60 s the last 6 s."""

    least_panic_window: float = 3.0
    """Seconds, within the stable window. Readings come once a second and those of several replicas are not of one
    moment, so that one of each alone tells of more or less than there is; and what they tell at most is held."""

    panic_threshold: float = 2.0
    """Panic when the panic window needs this many times the ready replicas. Knative's 200 %."""

    max_up_rate: float = 1_000.0
    """Times the ready replicas, in one decision. Knative's value: a bound on nonsense, not on bursts."""

    max_down_rate: float = 2.0
    """Divisor of the replicas in one tick. Knative's value: a wrong reading costs at most half."""

    peak_utilization: float = 0.9
    """Share of its slots, at least, that a replica is to use in a peak: what waits, and what the panic window filled.
    The policy's own utilization leaves room for peaks above an average; above a peak there is none to leave."""

    tolerance: float = 0.05
    """Replicas. Work for 4.04 replicas is work for 4: times of scrapes jitter by some milliseconds a second."""

    enough_coverage: float = 0.5
    """Share of the stable window that must hold data before anything is scaled down. Knative asks for a single
    sample; half a window outlives a scrape that failed, and not a source that is silent."""

    assumed_start_time: float = 10.0
    """Seconds from asking for a replica to its readiness, until a start of the revision was measured. Between a warm
    start (0.1 s) and a large model on a GPU (120 s)."""

    drain_within: float = 1.0
    """Seconds in which waiting requests are to be worked off once replicas are there: a queue of short requests needs
    no replica of its own, it is gone before a further one has started."""

    hold_starts: float = 12.0
    """Start times for which the most that was wanted is held: an idle replica costs its seconds, one that is missing a
    start to everybody who waits for it."""

    hold_least: float = 30.0
    """Seconds: even what starts at once is not worth moving for less."""

    hold_most: float = 600.0
    """Seconds: what starts in minutes is not kept for hours by one burst."""

    least_idle: float = 60.0
    """Seconds without work before the last replica goes, at least, where the policy leaves it to the start time."""

    near_objective: float = 0.8
    """Share of the latency objective from which on no replica goes: with fewer the answers would be too late."""

    enough_answers: float = 20.0
    """Answers without which a quantile of their times says nothing."""

    busy_share: float = 0.5
    """Share of their slots that replicas have in use, at least, when more replicas are to make answers faster."""

    most_slow_step: float = 2.0
    """Times the ready replicas, at most, that answers which come too late call for in one start time."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """How work is measured."""

    tick: float = 1.0
    """Seconds between two scrapes and decisions of revisions that have replicas. Knative scrapes every 1 s and decides
    every 2 s; here each scrape is decided on. Wakes from zero do not wait for it."""

    timeout: float = 0.8
    """Seconds for one scrape: less than a tick, so that a Pod that hangs never delays the others' tick."""

    max_bytes: int = 4_096
    """Bytes of one answer; ours has some 300. Knative reads at most 336 (CVE-2023-48713)."""

    max_pods: int = 16
    """Pods asked per revision and tick, as in Knative (`sample_size.go`: never more than 16)."""

    claim_limit: float = 16.0
    """Times its slots that one replica may claim to be busy with. Its own queue is bounded too; more is a lie."""


@dataclass(frozen=True, slots=True)
class Zero:
    """How the last replica goes."""

    enabled: bool = True
    """Whether a revision that can be reached may have no replica (Knative's enable-scale-to-zero): only where somebody
    hears of a request that waits for it."""

    grace: float = 0.0
    """Seconds between the activator being proven in the path and scale 0. Zero when the condition is exact (embedded:
    set after Envoy was seen to send there); Knative's scale-to-zero-grace-period is 30 s."""

    recheck: float = 1.0
    """Seconds until the Pods are asked again whether they are idle, when one did not answer."""

    progress_deadline: float = 600.0
    """Seconds for a revision to reach its initial scale, where its own annotation says nothing. Knative's default."""

    diagnosis: float = 10.0
    """Seconds beyond that deadline before the replicas go: at the deadline the Deployment says that it failed, and only
    then the Revision asks the Pods for the reason. Knative's activation timeout buffer, which is 30 s."""


@dataclass(frozen=True, slots=True)
class Activators:
    """How the activators of Knative are asked for requests that wait (`metrics/activators.py`)."""

    poll: float = 0.025
    """Seconds between two polls while a revision is at zero; a poll takes 0.7 ms."""

    calm: float = 0.25
    """Seconds between two polls while nothing is at zero."""

    timeout: float = 1.0
    """Seconds for one answer. Nobody waits for one that hangs but the last look before zero; on a machine that is short
    of CPU an answer takes half a second, and to give it up would make it later still."""

    max_bytes: int = 4_194_304
    """Bytes of one answer: 400 to 700 a revision, of which an activator counts 2 000 apart since its start."""

    deaf_after: float = 30.0
    """Seconds without an answer from an activator that is ready, after which nothing may be at zero any more."""


@dataclass(frozen=True, slots=True)
class WarmStart:
    """How members of warm pools are claimed and kept."""

    assign_timeout: float = 1.0
    """Seconds for a member to acknowledge its model: 3 ms when it lives, much more where the node is overloaded. Then
    another one is tried, or a cold start."""

    reap_after: float = 10.0
    """Seconds after which a claim that nobody works on is finished or undone."""

    look: float = 5.0
    """Seconds between looks at a pool of which nothing was heard."""

    create_burst: int = 4
    """Members of one pool that are started at once: the refill must not disturb what serves."""


@dataclass(frozen=True, slots=True)
class Records:
    """What people see."""

    kept_decisions: int = 20
    """Decisions in the annotation: 20 of them are some 8 kB, of the 256 kB that all annotations may have."""

    kept_starts: int = 10
    """Starts of replicas in the annotation, of some 400 bytes each."""

    kept_inputs: int = 8
    """Decisions that can be replayed, of some 800 bytes each."""

    usage_interval: float = 60.0
    """Seconds between two writes of what a revision's replicas held: a bill needs no seconds, and each is a write."""

    write_interval: float = 1.0
    """Seconds between two writes of a PodAutoscaler's decisions and starts: they are for people."""


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings of the autoscaler. Raises InvalidSettings when one is out of range."""

    scaling: Scaling = field(default_factory=Scaling)
    sampling: Sampling = field(default_factory=Sampling)
    zero: Zero = field(default_factory=Zero)
    records: Records = field(default_factory=Records)
    activators: Activators = field(default_factory=Activators)
    warm: WarmStart = field(default_factory=WarmStart)
    workers: int = 16
    """Reconcile passes at work at once: each waits for the cluster most of its time."""

    def __post_init__(self) -> None:
        if errors := list(_errors(self)):
            raise InvalidSettings("autoscaler settings refused: " + "; ".join(str(error) for error in errors))


def _errors(settings: Settings) -> Iterator[FieldError]:
    scaling, sampling, zero, records = settings.scaling, settings.sampling, settings.zero, settings.records
    checks = (
        ("scaling.panic_window_share", scaling.panic_window_share, 0.01, 1.0),
        ("scaling.least_panic_window", scaling.least_panic_window, 0.05, 60.0),
        ("scaling.panic_threshold", scaling.panic_threshold, 1.1, 1_000.0),
        ("scaling.max_up_rate", scaling.max_up_rate, 1.1, 1e6),
        ("scaling.max_down_rate", scaling.max_down_rate, 1.1, 1e6),
        ("scaling.peak_utilization", scaling.peak_utilization, 0.01, 1.0),
        ("scaling.tolerance", scaling.tolerance, 0.0, 0.5),
        ("scaling.enough_coverage", scaling.enough_coverage, 0.0, 1.0),
        ("scaling.assumed_start_time", scaling.assumed_start_time, 1e-2, 3_600.0),
        ("scaling.drain_within", scaling.drain_within, 1e-3, 3_600.0),
        ("scaling.hold_starts", scaling.hold_starts, 0.0, 1_000.0),
        ("scaling.hold_least", scaling.hold_least, 1.0, scaling.hold_most),
        ("scaling.hold_most", scaling.hold_most, 1.0, 86_400.0),
        ("scaling.least_idle", scaling.least_idle, 1.0, 86_400.0),
        ("scaling.near_objective", scaling.near_objective, 0.1, 1.0),
        ("scaling.enough_answers", scaling.enough_answers, 1.0, 1e6),
        ("scaling.busy_share", scaling.busy_share, 0.0, 1.0),
        ("scaling.most_slow_step", scaling.most_slow_step, 1.01, 100.0),
        ("sampling.tick", sampling.tick, 0.05, 60.0),
        ("sampling.timeout", sampling.timeout, 0.01, sampling.tick),
        ("sampling.max_bytes", sampling.max_bytes, 256, 1_048_576),
        ("sampling.max_pods", sampling.max_pods, 1, 1_000),
        ("sampling.claim_limit", sampling.claim_limit, 1.0, 1e6),
        ("zero.grace", zero.grace, 0.0, 3_600.0),
        ("zero.recheck", zero.recheck, 0.05, 60.0),
        ("zero.progress_deadline", zero.progress_deadline, 1.0, 86_400.0),
        ("zero.diagnosis", zero.diagnosis, 0.0, 3_600.0),
        ("records.kept_decisions", records.kept_decisions, 1, 100),
        ("records.kept_starts", records.kept_starts, 1, 100),
        ("records.kept_inputs", records.kept_inputs, 1, 100),
        ("records.usage_interval", records.usage_interval, 1.0, 3_600.0),
        ("records.write_interval", records.write_interval, 0.0, 60.0),
        ("activators.poll", settings.activators.poll, 0.005, 10.0),
        ("activators.calm", settings.activators.calm, 0.005, 60.0),
        ("activators.timeout", settings.activators.timeout, 0.01, 10.0),
        ("activators.max_bytes", settings.activators.max_bytes, 1_024, 1 << 26),
        ("activators.deaf_after", settings.activators.deaf_after, 0.1, 3_600.0),
        ("warm.assign_timeout", settings.warm.assign_timeout, 0.01, 60.0),
        ("warm.reap_after", settings.warm.reap_after, 0.1, 600.0),
        ("warm.look", settings.warm.look, 0.05, 600.0),
        ("warm.create_burst", settings.warm.create_burst, 1, 100),
        ("workers", settings.workers, 1, 64),
    )
    for path, value, least, most in checks:
        if not least <= value <= most:
            yield FieldError(path, f"must be from {least:g} to {most:g}, not {value:g}")
