"""How long each start of a replica took, step by step, by this process's own clock.

A start begins when the replica was asked for and ends when it is ready (cold) or requests may come (warm); what follows
nobody waits for. Steps are disjoint:

    cold   create    asked for → the Pod is there       warm   reserve   asked for → nobody else may take the member
           schedule  → it has a node                           assign    → the member has acknowledged its model
           start     → its containers run                      label     → requests may come
           ready     → it is ready                             adopt     → it counts as the ReplicaSet's

Each cold start's seconds are told to the decider, whose holds are as long as starts take; warm ones, which take some
milliseconds as long as the pool has members, are not. After a restart of this process they are read back from what was
noted. Beside them stands what the server itself measured (`/stats`: imports, load, warmup), which overlaps with them.
An entry: `{"at","pod","kind":"cold|warm","milliseconds","steps":[{"name","milliseconds"}],"server":{"load":…},
"format":"onnx"}`; what the server did not tell is absent. A start that ended while no process of ours lived is noted,
too, where none before it told a format: by what the Pod says of itself, to the second, with no steps, and with no
milliseconds where a container has started again since or they make no sense. The decider is never told of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from autoscaler.metrics.stat import Sample
from autoscaler.reconciler.notes import Notes
from autoscaler.types import read_notes
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

MS: Final = 1000.0  # milliseconds in a second
SERVES: Final = "label"
"""The step of a warm start after which requests come."""
LAST_OF_WARM: Final = "adopt"
COLD: Final = "cold"
WAIT_FOR_SERVER: Final = 3.0  # s after its end in which the server's own figures of a start are waited for
ASKED_FOR: Final = 60.0  # s after which a new Pod is not the answer to what was asked for, but replaces another
JUST_NOW: Final = 5.0  # s since a Pod was made until it is seen, at most; the clocks of two machines differ too
LONGEST: Final = 3_600.0  # s; a start that has not ended by then is not worth a line


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
"""Takes how many seconds a cold start of a revision took."""


class Starts:
    """Follows Pods and claims; tells `notes` of each start that has ended, and `started` of each cold one."""

    def __init__(self, notes: Notes, clock: Clock, started: Started) -> None:
        self._notes = notes
        self._clock = clock
        self._started = started
        self._asked: dict[Key, float] = {}
        self._running: dict[str, _Start] = {}
        self._done: set[str] = set()
        self._found: dict[str, Object] = {}  # Pods that were ready before this process saw them
        self._formats: dict[Key, str] = {}  # of revisions: what a server found

    def remember(self, key: Key, pod_autoscaler: Object) -> None:
        """The revision is new to this process: tell `started` of what a former one has noted."""
        found = [entry["format"] for entry in read_notes(pod_autoscaler, ANNOTATION_STARTS) if entry.get("format")]
        if found:
            self._formats[key] = str(found[-1])
        for seconds in noted_cold_starts(pod_autoscaler):
            self._started(key, seconds)

    def format_of(self, key: Key) -> str:
        """Return the model format that a server of the revision found, empty while none has been read."""
        return self._formats.get(key, "")

    def asked(self, key: Key) -> None:
        """More replicas are asked for from now on."""
        self._asked[key] = self._clock.monotonic()

    def forget(self, key: Key) -> None:
        """The revision is gone."""
        self._asked.pop(key, None)
        self._formats.pop(key, None)
        for pod in [pod for pod, start in self._running.items() if start.key == key]:
            del self._running[pod]

    def claimed(self, step: ClaimStep) -> None:
        """A step of a claim has ended."""
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

    def pod(self, before: Object | None, after: Object | None) -> None:
        """A Pod of a revision has changed; for `Informer.subscribe`."""
        if after is None:
            self._gone(before)
            return
        name = str(key_of(after))
        if name in self._done or LABEL_POOL in labels_of(after) or is_claimed(after):
            return
        start = self._running.get(name) or self._begin(after, name)
        if start is None:
            return
        now = self._clock.monotonic()
        for step in _reached(after):
            start.reached(step, now)
        if is_ready(after):
            start.ended = now

    def heard(self, last: Callable[[Key], Mapping[str, Sample]]) -> list[Key]:
        """Replicas were read: a start that has ended is noted with what its server says of it; returns whose were."""
        now, noted = self._clock.monotonic(), []
        for pod, start in list(self._running.items()):
            sample = last(start.key).get(pod)
            late = start.ended is not None and now - start.ended > WAIT_FOR_SERVER
            if start.ended is not None and (late or (sample is not None and sample.startup)):
                self._note(pod, start, sample)
                noted.append(start.key)
            elif now - start.began > LONGEST:
                del self._running[pod]
        return [*noted, *self._heard_late(last)]

    def _heard_late(self, last: Callable[[Key], Mapping[str, Sample]]) -> Iterator[Key]:
        """Note the start of a Pod that was found running, where nobody has told yet what its server found."""
        for name, pod in list(self._found.items()):
            key = Key(namespace_of(pod), labels_of(pod)[LABEL_REVISION])
            sample = last(key).get(name) if key not in self._formats else None
            if sample is not None and sample.format:
                self._formats[key] = sample.format
                self._notes.add_start(key, _entry(name, COLD, *_own_times(pod), (), sample))
                yield key

    def _since(self, key: Key, now: float) -> float:
        asked = self._asked.get(key, now)
        return asked if now - asked < ASKED_FOR else now

    def _begin(self, pod: Object, name: str) -> _Start | None:
        revision = labels_of(pod).get(LABEL_REVISION)
        if not revision:
            return None
        if is_ready(pod):  # found running
            self._done.add(name)
            self._found[name] = pod
            return None
        key, now = Key(namespace_of(pod), revision), self._clock.monotonic()
        began = self._since(key, now)
        self._running[name] = _Start(key, began, COLD, whole=began < now or self._is_new(pod))
        return self._running[name]

    def _is_new(self, pod: Object) -> bool:
        """Whether it was made just now, and not found half-way by a process that has just started."""
        made = pod["metadata"].get("creationTimestamp")
        return bool(made) and abs((self._clock.now() - parse_timestamp(made)).total_seconds()) <= JUST_NOW

    def _gone(self, pod: Object | None) -> None:
        if pod is not None:
            self._running.pop(str(key_of(pod)), None)
            self._done.discard(str(key_of(pod)))
            self._found.pop(str(key_of(pod)), None)

    def _note(self, pod: str, start: _Start, sample: Sample | None) -> None:
        del self._running[pod]
        self._done.add(pod)
        if start.kind == COLD and start.whole:
            self._started(start.key, start.served - start.began)
        seconds, at = start.served - start.began, timestamp(self._clock.now())
        entry = _entry(pod, start.kind, at, seconds, tuple(_steps(start)), sample)
        self._notes.add_start(start.key, entry)
        if "format" in entry:
            self._formats[start.key] = entry["format"]


def noted_cold_starts(pod_autoscaler: Object) -> list[float]:
    """Seconds of the cold starts in the annotation, oldest first; what nobody saw, or makes no sense, is left out."""
    entries = read_notes(pod_autoscaler, ANNOTATION_STARTS)
    said = [entry.get("milliseconds") for entry in entries if entry.get("kind") == COLD and entry.get("steps")]
    numbers = [one for one in said if isinstance(one, int | float) and not isinstance(one, bool)]
    return [one / MS for one in numbers if 0.0 < one <= LONGEST * MS]


def _reached(pod: Object) -> Iterable[str]:
    """The steps of a cold start that this Pod has behind it."""
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
    """What is noted of a start of the Pod `namespace/name`; `seconds`: None where nobody knows."""
    entry: dict[str, Any] = {"at": at, "pod": pod.partition("/")[2], "kind": kind}
    if seconds is not None:
        entry["milliseconds"] = _ms(seconds)
    entry["steps"] = list(steps)
    if sample is not None:
        told = {"server": dict(sample.startup or {}), "format": sample.format}
        entry |= {name: value for name, value in told.items() if value}
    return entry


def _own_times(pod: Object) -> tuple[str, float | None]:
    """When the ready Pod became so, and the seconds from its making until then, where those can be its start's."""
    at = str((condition_of(pod, "Ready") or {}).get("lastTransitionTime") or pod["metadata"]["creationTimestamp"])
    seconds = (parse_timestamp(at) - parse_timestamp(pod["metadata"]["creationTimestamp"])).total_seconds()
    return at, seconds if restarts_of(pod) == 0 and 0.0 <= seconds <= LONGEST else None


def _steps(start: _Start) -> Iterable[dict[str, Any]]:
    last = start.began
    for name, at in start.marks:
        yield {"name": name, "milliseconds": _ms(max(0.0, at - last))}
        last = max(last, at)


def _ms(seconds: float) -> float:
    return round(seconds * MS, 1)
