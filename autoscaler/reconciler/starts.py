"""The duration of each start of a replica, step by step, by this process's clock.

A start begins when the replica is requested. It ends when the replica is ready (cold) or requests may come (warm); no
caller waits for later steps. Steps are disjoint:

    cold   create    requested → the Pod exists         warm   reserve   requested → the member is reserved
           schedule  → it has a node                           assign    → the member has acknowledged its model
           start     → its containers run                      label     → requests may come
           ready     → it is ready                             adopt     → the ReplicaSet owns it

The duration of each cold start goes to the decider, whose holds are multiples of it. Warm starts do not count: they
take some milliseconds while the pool has members. After a restart of this process, durations are read back from the
annotation. The server's own measurements (`/stats`: imports, load, warmup) are recorded beside them and overlap with
them.

An entry: `{"at","pod","kind":"cold|warm","milliseconds","steps":[{"name","milliseconds"}],"server":{"load":…},
"format":"onnx"}`; values that the server did not report are absent. A start that ended while no autoscaler ran is
recorded too, if no earlier entry has a format. It is taken from the Pod's status with a resolution of a second, without
steps, and without milliseconds if a container has restarted since or the times are implausible. The decider does not
use it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from autoscaler.metrics.stat import Sample
from autoscaler.reconciler.decision_recorder import MS, DecisionRecorder
from autoscaler.types import read_entries
from autoscaler.warmpool.claims.claim import ClaimStep
from autoscaler.warmpool.claims.marks import ANNOTATION_STARTS, LABEL_POOL
from autoscaler.warmpool.claims.pods import is_claimed, restarts_of
from clusters.base.clock import Clock
from clusters.base.objects import (
    LABEL_REVISION,
    Key,
    Object,
    condition_of,
    key_of,
    labels_of,
    namespace_of,
    parse_timestamp,
    timestamp,
)
from clusters.net.endpoints import is_ready

SERVES: Final = "label"
"""The step of a warm start after which requests may come."""
LAST_OF_WARM: Final = "adopt"
COLD: Final = "cold"
WAIT_FOR_SERVER: Final = 3.0  # s after its end in which a start waits for the server's measurements
REQUEST_VALID_FOR: Final = 60.0  # s after which a new Pod no longer belongs to the request, but replaces another
JUST_NOW: Final = 5.0  # maximum s from a Pod's creation until it is seen; the clocks of two machines differ too
LONGEST: Final = 3_600.0  # s; longer starts are not recorded


@dataclass(slots=True)
class _Start:
    key: Key
    began: float
    kind: str
    whole: bool = True  # whether its beginning was seen
    marks: list[tuple[str, float]] = field(default_factory=list)  # step → when it ended
    ended: float | None = None

    @property
    def served(self) -> float:
        """When requests could come."""
        return next((at for name, at in self.marks if name == SERVES), self.ended or self.began)

    def reached(self, step: str, at: float) -> None:
        if all(name != step for name, _ in self.marks):
            self.marks.append((step, at))


Started = Callable[[Key, float], None]
"""Receives the seconds of a revision's cold start."""


class StartTracker:
    """Follows Pods and claims. Records each completed start, and passes the duration of cold ones to `started`."""

    def __init__(self, recorder: DecisionRecorder, clock: Clock, started: Started) -> None:
        self._recorder = recorder
        self._clock = clock
        self._started = started
        self._requested: dict[Key, float] = {}
        self._running: dict[str, _Start] = {}
        self._done: set[str] = set()
        self._found: dict[str, Object] = {}  # Pods that were ready when first seen
        self._formats: dict[Key, str] = {}  # model formats that servers detected

    def restore(self, key: Key, pod_autoscaler: Object) -> None:
        """Pass the recorded starts of a revision that is new to this process to `started`."""
        found = [entry["format"] for entry in read_entries(pod_autoscaler, ANNOTATION_STARTS) if entry.get("format")]
        if found:
            self._formats[key] = str(found[-1])
        for seconds in recorded_cold_starts(pod_autoscaler):
            self._started(key, seconds)

    def format_of(self, key: Key) -> str:
        """Return the model format that a server of the revision detected, empty while none is known."""
        return self._formats.get(key, "")

    def mark_requested(self, key: Key) -> None:
        """Record the request for more replicas."""
        self._requested[key] = self._clock.monotonic()

    def forget(self, key: Key) -> None:
        """Delete a revision that is gone."""
        self._requested.pop(key, None)
        self._formats.pop(key, None)
        for pod in [pod for pod, start in self._running.items() if start.key == key]:
            del self._running[pod]

    def record_claim_step(self, step: ClaimStep) -> None:
        """Record a completed step of a claim."""
        pod = str(Key(step.key.namespace, step.pod))
        if not step.ok:
            self._running.pop(pod, None)
            return
        start = self._running.get(pod)
        if start is None or start.kind != "warm":
            start = self._running[pod] = _Start(step.key, self._since(step.key, step.started), "warm")
        start.reached(step.step, step.started + step.seconds)
        if step.step == LAST_OF_WARM:
            start.ended = step.started + step.seconds

    def on_pod(self, before: Object | None, after: Object | None) -> None:
        """Observe a changed Pod of a revision; for `Informer.subscribe`."""
        if after is None:
            if before is not None:
                self._running.pop(str(key_of(before)), None)
                self._done.discard(str(key_of(before)))
                self._found.pop(str(key_of(before)), None)
            return
        name = str(key_of(after))
        if name in self._done or LABEL_POOL in labels_of(after) or is_claimed(after):
            return
        start = self._running.get(name) or self._track(after, name)
        if start is None:
            return
        now = self._clock.monotonic()
        for step in _reached(after):
            start.reached(step, now)
        if is_ready(after):
            start.ended = now

    def observe_readings(self, last: Callable[[Key], Mapping[str, Sample]]) -> list[Key]:
        """Record completed starts with the server's measurements after a tick. Return their revisions."""
        now, noted = self._clock.monotonic(), []
        for pod, start in list(self._running.items()):
            sample = last(start.key).get(pod)
            late = start.ended is not None and now - start.ended > WAIT_FOR_SERVER
            if start.ended is not None and (late or (sample is not None and sample.startup)):
                self._record(pod, start, sample)
                noted.append(start.key)
            elif now - start.began > LONGEST:
                del self._running[pod]
        for name, found in self._found.items():  # these were already running; recorded while the format is unknown
            key = Key(namespace_of(found), labels_of(found)[LABEL_REVISION])
            sample = last(key).get(name) if key not in self._formats else None
            if sample is not None and sample.format:
                self._formats[key] = sample.format
                self._recorder.add_start(key, _entry(name, COLD, *_own_times(found), (), sample))
                noted.append(key)
        return noted

    def _since(self, key: Key, now: float) -> float:
        requested = self._requested.get(key, now)
        return requested if now - requested < REQUEST_VALID_FOR else now

    def _track(self, pod: Object, name: str) -> _Start | None:
        revision = labels_of(pod).get(LABEL_REVISION)
        if not revision:
            return None
        if is_ready(pod):  # was already running
            self._done.add(name)
            self._found[name] = pod
            return None
        key, now = Key(namespace_of(pod), revision), self._clock.monotonic()
        began = self._since(key, now)
        made = pod["metadata"].get("creationTimestamp")  # a new process may find a half-started Pod
        is_new = bool(made) and abs((self._clock.now() - parse_timestamp(made)).total_seconds()) <= JUST_NOW
        self._running[name] = _Start(key, began, COLD, whole=began < now or is_new)
        return self._running[name]

    def _record(self, pod: str, start: _Start, sample: Sample | None) -> None:
        del self._running[pod]
        self._done.add(pod)
        if start.kind == COLD and start.whole:
            self._started(start.key, start.served - start.began)
        seconds, at = start.served - start.began, timestamp(self._clock.now())
        steps, last = [], start.began
        for name, reached in start.marks:
            steps.append({"name": name, "milliseconds": _ms(max(0.0, reached - last))})
            last = max(last, reached)
        entry = _entry(pod, start.kind, at, seconds, steps, sample)
        self._recorder.add_start(start.key, entry)
        if "format" in entry:
            self._formats[start.key] = entry["format"]


def recorded_cold_starts(pod_autoscaler: Object) -> list[float]:
    """Return the seconds of the cold starts in the annotation, oldest first, without unobserved and implausible
    ones.
    """
    entries = read_entries(pod_autoscaler, ANNOTATION_STARTS)
    durations = [entry.get("milliseconds") for entry in entries if entry.get("kind") == COLD and entry.get("steps")]
    numbers = [one for one in durations if isinstance(one, int | float) and not isinstance(one, bool)]
    return [one / MS for one in numbers if 0.0 < one <= LONGEST * MS]


def _reached(pod: Object) -> Iterable[str]:
    """Yield the steps of a cold start that this Pod has completed."""
    yield "create"
    if (pod.get("spec") or {}).get("nodeName"):
        yield "schedule"
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    if statuses and all("running" in (status.get("state") or {}) for status in statuses):
        yield "start"
    if is_ready(pod):
        yield "ready"


def _entry(
    pod: str, kind: str, at: str, seconds: float | None, steps: Sequence[dict[str, Any]], sample: Sample | None
) -> dict[str, Any]:
    """Return the entry for a start of the Pod `namespace/name`; `seconds` is None if unknown."""
    entry: dict[str, Any] = {"at": at, "pod": pod.partition("/")[2], "kind": kind}
    if seconds is not None:
        entry["milliseconds"] = _ms(seconds)
    entry["steps"] = list(steps)
    if sample is not None:
        measured = {"server": dict(sample.startup or {}), "format": sample.format}
        entry |= {name: value for name, value in measured.items() if value}
    return entry


def _own_times(pod: Object) -> tuple[str, float | None]:
    """Return when the ready Pod became ready, and the seconds since its creation if they can be those of its start."""
    at = str((condition_of(pod, "Ready") or {}).get("lastTransitionTime") or pod["metadata"]["creationTimestamp"])
    seconds = (parse_timestamp(at) - parse_timestamp(pod["metadata"]["creationTimestamp"])).total_seconds()
    return at, seconds if restarts_of(pod) == 0 and 0.0 <= seconds <= LONGEST else None


def _ms(seconds: float) -> float:
    return round(seconds * MS, 1)
