"""A collector of readings: from the totals of ready replicas to the work of each revision.

At most `max_pods` replicas of a revision are read per tick, in rotation, and represent the others. Implausible readings
are limited (`replica_rate.py`). Replicas that do not answer, or answer with a reading older than their last one, count
as missing, not as idle. For revisions with a latency objective, response times are read too (`response_latency.py`).
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from autoscaler.config import Sampling
from autoscaler.metrics.replica_rate import limit_outliers, rate_between
from autoscaler.metrics.response_latency import LatencySource, LatencyTotals, RecentLatencies
from autoscaler.metrics.source import MetricSource, NoSample
from autoscaler.metrics.stat import BadSample, Sample
from clusters.base.objects import Key
from clusters.net.endpoints import Endpoint
from clusters.runtime.manager.metrics import Family

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ScrapeTarget:
    """A revision to read: its ready replicas, the slots of each, and whether it has a latency objective."""

    endpoints: tuple[Endpoint, ...]
    slots: float
    objective: bool = False


@dataclass(frozen=True, slots=True)
class RevisionReading:
    """The result of one tick for one revision.

    `work`: average slots in use since the last reading, of all ready replicas. `missing`: slots that unanswering
    replicas may have used. `served`: slot-seconds of `requests` requests. `complete`: every ready replica was read.
    `crowd`: slots used or waited for inside replicas at both this reading and the one before; 0 unless requests waited
    for a slot of the same replica at both. `latency`: quantile of recent response times in seconds
    (`response_latency.QUANTILE`), NaN without an objective or responses; `answers`: its number of responses.
    """

    work: float
    missing: float
    served: float
    requests: float
    busy: bool
    complete: bool
    crowd: float = 0.0
    latency: float = math.nan
    answers: float = 0.0


class MetricCollector:
    """Keeps each replica's last reading. Without `answers`, no latency is read."""

    def __init__(self, source: MetricSource, sampling: Sampling, answers: LatencySource | None = None) -> None:
        self._source = source
        self._answers = answers
        self._latencies = RecentLatencies()
        self._sampling = sampling
        self._last: dict[Key, dict[str, Sample]] = {}
        self._turn = 0
        self.accepted = 0  # readings since the start
        self.rejected = 0  # malformed readings since the start
        self.unanswered = 0  # replicas that did not answer since the start

    async def read(self, targets: Mapping[Key, ScrapeTarget]) -> dict[Key, RevisionReading]:
        """Read all targets concurrently. The result omits revisions of which no replica answered."""
        self._turn += 1
        chosen = {key: self._choose(target.endpoints) for key, target in targets.items()}
        scraped = [endpoint for endpoints in chosen.values() for endpoint in endpoints]
        timed = [endpoint for key, endpoints in chosen.items() if targets[key].objective for endpoint in endpoints]
        found, pages = await asyncio.gather(
            asyncio.gather(*(self._sample(endpoint) for endpoint in scraped)), self._read_latencies(timed)
        )
        answers = iter(found)
        readings = {}
        for key, endpoints in chosen.items():
            samples = {endpoint.pod: next(answers) for endpoint in endpoints}
            reading = self._combine(key, targets[key], samples)
            if reading is not None:
                readings[key] = self._with_latency(key, targets[key], reading, pages)
        return readings

    async def is_quiet(self, key: Key, endpoints: Sequence[Endpoint], since: float = float("-inf")) -> bool:
        """Return whether no replica has had any work since its last reading.

        `since` (monotonic seconds) is the time from which every request passes the activator. Raises NoSample when a
        replica does not answer, or its reading covers only an earlier time.
        """
        last = self._last.get(key, {})
        samples = await asyncio.gather(*(self._sample(endpoint) for endpoint in endpoints))
        for endpoint, sample in zip(endpoints, samples, strict=True):
            if sample is None:
                raise NoSample(f"{endpoint.pod} did not answer, so it may not be idle")
        for endpoint, sample in zip(endpoints, filter(None, samples), strict=True):
            if sample.at - sample.lag < since:
                raise NoSample(f"{endpoint.pod} has no reading since the activator took over, so it may not be idle")
            before = last.get(endpoint.pod)
            served = sample.requests - before.requests if before is not None else sample.requests
            if served != 0.0 or sample.in_flight > 0.0:
                return False
        return True

    def last(self, key: Key) -> Mapping[str, Sample]:
        """Return the last reading of each replica of this revision, by Pod (`namespace/name`)."""
        return self._last.get(key, {})

    def forget(self, key: Key) -> None:
        """Delete a revision that is gone or has no replicas."""
        self._last.pop(key, None)
        self._latencies.forget(key)

    def families(self) -> list[Family]:
        """Return the metrics of the readings, by result."""
        results = (
            ({"result": "read"}, float(self.accepted)),
            ({"result": "rejected"}, float(self.rejected)),
            ({"result": "unanswered"}, float(self.unanswered)),
        )
        return [Family("knodel_samples_total", "counter", "Readings of replicas, by result.", results)]

    async def _sample(self, endpoint: Endpoint) -> Sample | None:
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

    async def _read_latencies(self, endpoints: Sequence[Endpoint]) -> dict[str, LatencyTotals]:
        """Return the pages of replicas that have one, by Pod."""
        if self._answers is None or not endpoints:
            return {}
        reads = (self._answers.answers(endpoint) for endpoint in endpoints)
        found = dict(zip(endpoints, await asyncio.gather(*reads, return_exceptions=True), strict=True))
        for endpoint, page in found.items():
            if isinstance(page, BaseException):
                if not isinstance(page, NoSample | BadSample):
                    raise page
                self.rejected += isinstance(page, BadSample)
                log.debug("%s: %s", endpoint.pod, page)
        return {endpoint.pod: page for endpoint, page in found.items() if isinstance(page, LatencyTotals)}

    def _with_latency(
        self, key: Key, target: ScrapeTarget, reading: RevisionReading, pages: Mapping[str, LatencyTotals]
    ) -> RevisionReading:
        """Return the reading with the latency, if it is known."""
        if not target.objective or self._answers is None:
            self._latencies.forget(key)
            return reading
        ready = frozenset(endpoint.pod for endpoint in target.endpoints)
        now = max(sample.at for sample in self._last[key].values())
        own = {pod: page for pod, page in pages.items() if pod in ready}
        latency, answers = self._latencies.add(key, own, ready, now)
        return replace(reading, latency=latency, answers=float(answers))

    def _choose(self, endpoints: tuple[Endpoint, ...]) -> tuple[Endpoint, ...]:
        """Return all endpoints, or the next `max_pods` in rotation."""
        count, most = len(endpoints), self._sampling.max_pods
        if count <= most:
            return endpoints
        first = self._turn * most % count
        return (endpoints + endpoints)[first : first + most]

    def _combine(self, key: Key, target: ScrapeTarget, samples: Mapping[str, Sample | None]) -> RevisionReading | None:
        known = self._last.setdefault(key, {})
        ready = {endpoint.pod for endpoint in target.endpoints}
        for pod in [pod for pod in known if pod not in ready]:
            del known[pod]
        answered = {pod: sample for pod, sample in samples.items() if sample is not None}
        current = {pod: sample for pod, sample in answered.items() if pod not in known or sample.at >= known[pod].at}
        self.rejected += len(answered) - len(current)
        if not current:
            return None
        most = self._sampling.claim_limit * target.slots
        rates = [rate_between(known.get(pod), sample, most) for pod, sample in current.items()]
        rates = limit_outliers(rates, target.slots)
        known.update(current)
        share = len(ready) / len(samples)  # the sampled replicas represent the others
        return RevisionReading(
            work=sum(rate.rate for rate in rates) * share,
            missing=(len(samples) - len(current)) * target.slots * share,
            served=sum(rate.served for rate in rates),
            requests=sum(rate.requests for rate in rates),
            busy=any(rate.busy for rate in rates),
            complete=len(current) == len(ready),
            crowd=sum(rate.stays for rate in rates) * share if any(rate.waits for rate in rates) else 0.0,
        )
