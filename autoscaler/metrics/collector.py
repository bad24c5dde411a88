"""From the totals of replicas to the work of a revision: asks the ready ones, takes differences, says what is unknown.

Rules: at most `max_pods` replicas are asked per tick, in rotation, and speak for the others; the first reading of a
replica, and one after its totals fell (a restart), counts by what is in flight at that moment; a claim is clamped to
`claim_limit` times the replica's slots; replicas that were asked and did not answer are missing, not idle.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from autoscaler.config import Sampling
from autoscaler.metrics.source import MetricSource, NoSample
from autoscaler.metrics.stat import BadSample, Sample
from clusters.endpoints import Endpoint
from clusters.objects import Key

log = logging.getLogger(__name__)

MIN_INTERVAL = 1e-3  # s: two readings nearer than that say nothing about the time between them


@dataclass(frozen=True, slots=True)
class Target:
    """A revision to read: its ready replicas, and the slots that each of them has."""

    endpoints: tuple[Endpoint, ...]
    slots: float


@dataclass(frozen=True, slots=True)
class Reading:
    """What one tick learned of one revision.

    `work`: slots in use since the last reading, on average, of all ready replicas. `missing`: slots that silent ones
    may have held. `served` slot-seconds went to `requests` requests. `complete`: every ready replica was heard.
    `crowd`: slots used or waited for inside replicas, as this reading and the one before agree; 0 unless requests
    waited for a slot of the same replica at both.
    """

    work: float
    missing: float
    served: float
    requests: float
    busy: bool
    complete: bool
    crowd: float = 0.0


@dataclass(frozen=True, slots=True)
class _Claim:
    """What one replica says of the time since its last reading."""

    rate: float
    served: float
    requests: float
    busy: bool
    stays: float = 0.0  # slots used or waited for at both readings
    waits: bool = False  # whether requests waited for a slot at both


class Collector:
    """Keeps each replica's last reading."""

    def __init__(self, source: MetricSource, sampling: Sampling) -> None:
        self._source = source
        self._sampling = sampling
        self._last: dict[Key, dict[str, Sample]] = {}
        self._turn = 0
        self.accepted = 0  # readings since the start
        self.rejected = 0  # readings that were no readings, since the start
        self.unanswered = 0  # replicas that did not answer, since the start

    async def read(self, targets: Mapping[Key, Target]) -> dict[Key, Reading]:
        """Ask all at once. Revisions of which no replica answered are absent from the result."""
        self._turn += 1
        chosen = {key: self._choose(target.endpoints) for key, target in targets.items()}
        asked = [endpoint for endpoints in chosen.values() for endpoint in endpoints]
        answers = iter(await asyncio.gather(*(self._ask(endpoint) for endpoint in asked)))
        readings = {}
        for key, endpoints in chosen.items():
            samples = {endpoint.pod: next(answers) for endpoint in endpoints}
            reading = self._digest(key, targets[key], samples)
            if reading is not None:
                readings[key] = reading
        return readings

    async def is_quiet(self, key: Key, endpoints: Sequence[Endpoint], since: float = float("-inf")) -> bool:
        """Whether no replica has, or had since its last reading, anything to do.

        `since` (monotonic seconds): the moment from which on nothing reaches a replica unnoticed. Raises NoSample when
        a replica is silent, or speaks of an earlier time only.
        """
        last = self._last.get(key, {})
        for endpoint, sample in zip(endpoints, await self._ask_all(endpoints), strict=True):
            if sample.at - sample.lag < since:
                raise NoSample(f"{endpoint.pod} does not say yet whether it is idle: its last period began too early")
            before = last.get(endpoint.pod)
            served = sample.requests - before.requests if before is not None else sample.requests
            if served != 0.0 or sample.in_flight > 0.0:
                return False
        return True

    def last(self, key: Key) -> Mapping[str, Sample]:
        """The last reading of each replica of this revision, by Pod (`namespace/name`)."""
        return self._last.get(key, {})

    def forget(self, key: Key) -> None:
        """The revision is gone, or has no replicas."""
        self._last.pop(key, None)

    async def _ask_all(self, endpoints: Sequence[Endpoint]) -> list[Sample]:
        samples = await asyncio.gather(*(self._ask(endpoint) for endpoint in endpoints))
        for endpoint, sample in zip(endpoints, samples, strict=True):
            if sample is None:
                raise NoSample(f"{endpoint.pod} does not say whether it is idle")
        return [sample for sample in samples if sample is not None]

    async def _ask(self, endpoint: Endpoint) -> Sample | None:
        try:
            sample = await self._source.sample(endpoint)
            self.accepted += 1
            return sample
        except BadSample as error:
            self.rejected += 1
            log.debug("%s: reading rejected: %s", endpoint.pod, error)
        except NoSample as error:
            self.unanswered += 1
            log.debug("%s", error)
        return None

    def _choose(self, endpoints: tuple[Endpoint, ...]) -> tuple[Endpoint, ...]:
        """All, or the next `max_pods` in rotation."""
        count, most = len(endpoints), self._sampling.max_pods
        if count <= most:
            return endpoints
        first = self._turn * most % count
        return (endpoints + endpoints)[first : first + most]

    def _digest(self, key: Key, target: Target, samples: Mapping[str, Sample | None]) -> Reading | None:
        known = self._last.setdefault(key, {})
        ready = {endpoint.pod for endpoint in target.endpoints}
        for pod in [pod for pod in known if pod not in ready]:
            del known[pod]
        heard = {pod: sample for pod, sample in samples.items() if sample is not None}
        if not heard:
            return None
        claims = [self._claim(known.get(pod), sample, target.slots) for pod, sample in heard.items()]
        known.update(heard)
        share = len(ready) / len(samples)  # those that were asked speak for those that were not
        return Reading(
            work=sum(claim.rate for claim in claims) * share,
            missing=(len(samples) - len(heard)) * target.slots * share,
            served=sum(claim.served for claim in claims),
            requests=sum(claim.requests for claim in claims),
            busy=any(claim.busy for claim in claims),
            complete=len(heard) == len(ready),
            crowd=sum(claim.stays for claim in claims) * share if any(claim.waits for claim in claims) else 0.0,
        )

    def _claim(self, before: Sample | None, now: Sample, slots: float) -> _Claim:
        most = self._sampling.claim_limit * slots
        if before is None or now.busy_seconds < before.busy_seconds or now.requests < before.requests:
            return _Claim(min(now.in_flight, most), 0.0, 0.0, now.in_flight > 0.0 or now.requests > 0.0)
        elapsed = now.at - before.at
        served, requests = now.busy_seconds - before.busy_seconds, now.requests - before.requests
        rate = served / elapsed if elapsed >= MIN_INTERVAL else now.in_flight
        return _Claim(
            rate=min(rate, most),
            served=min(served, most * max(elapsed, 0.0)),
            requests=requests,
            busy=now.in_flight > 0.0 or requests > 0.0,
            stays=min(before.in_flight, now.in_flight, most),
            waits=before.queued > 0.0 and now.queued > 0.0,
        )
