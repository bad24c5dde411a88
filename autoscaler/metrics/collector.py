"""From the totals of replicas to the work of a revision: asks the ready ones, takes differences, says what is unknown.

Rules: at most `max_pods` replicas are asked per tick, in rotation, and speak for the others; what a replica says of
itself is believed within bounds (`claims.py`); replicas that were asked and did not answer are missing, not idle, and
so are those that speak of a time before their last reading. Where a revision has a latency objective, its replicas are
also asked how long their answers took (`answers.py`).
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from autoscaler.config import Sampling
from autoscaler.metrics.answers import Answers, AnswerSource, Latencies
from autoscaler.metrics.claims import make_claim, without_outliers
from autoscaler.metrics.source import MetricSource, NoSample
from autoscaler.metrics.stat import BadSample, Sample
from clusters.base.objects import Key
from clusters.net.endpoints import Endpoint

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Target:
    """A revision to read: its ready replicas, the slots that each has, and whether it has a latency objective."""

    endpoints: tuple[Endpoint, ...]
    slots: float
    objective: bool = False


@dataclass(frozen=True, slots=True)
class Reading:
    """What one tick learned of one revision.

    `work`: slots in use since the last reading, on average, of all ready replicas. `missing`: slots that silent ones
    may have held. `served` slot-seconds went to `requests` requests. `complete`: every ready replica was heard.
    `crowd`: slots used or waited for inside replicas, as this reading and the one before agree; 0 unless requests
    waited for a slot of the same replica at both. `latency`: seconds within which most answers of late were given
    (`answers.QUANTILE`), NaN without an objective or an answer; `answers`: how many stand behind it.
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


class Collector:
    """Keeps each replica's last reading; without `answers` no latency is known."""

    def __init__(self, source: MetricSource, sampling: Sampling, answers: AnswerSource | None = None) -> None:
        self._source = source
        self._answers = answers
        self._latencies = Latencies()
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
        timed = [endpoint for key, endpoints in chosen.items() if targets[key].objective for endpoint in endpoints]
        found, pages = await asyncio.gather(
            asyncio.gather(*(self._ask(endpoint) for endpoint in asked)), self._ask_for_answers(timed)
        )
        answers = iter(found)
        readings = {}
        for key, endpoints in chosen.items():
            samples = {endpoint.pod: next(answers) for endpoint in endpoints}
            reading = self._digest(key, targets[key], samples)
            if reading is not None:
                readings[key] = self._timed(key, targets[key], reading, pages)
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
        self._latencies.forget(key)

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

    async def _ask_for_answers(self, endpoints: Sequence[Endpoint]) -> dict[str, Answers]:
        """The pages of those that have one, by Pod."""
        if self._answers is None or not endpoints:
            return {}
        asked = (self._answers.answers(endpoint) for endpoint in endpoints)
        found = dict(zip(endpoints, await asyncio.gather(*asked, return_exceptions=True), strict=True))
        for endpoint, page in found.items():
            if isinstance(page, BaseException):
                if not isinstance(page, NoSample | BadSample):
                    raise page
                self.rejected += isinstance(page, BadSample)
                log.debug("%s: %s", endpoint.pod, page)
        return {endpoint.pod: page for endpoint, page in found.items() if isinstance(page, Answers)}

    def _timed(self, key: Key, target: Target, reading: Reading, pages: Mapping[str, Answers]) -> Reading:
        """The reading with what is known of the latency."""
        if not target.objective or self._answers is None:
            self._latencies.forget(key)
            return reading
        ready = frozenset(endpoint.pod for endpoint in target.endpoints)
        now = max(sample.at for sample in self._last[key].values())
        own = {pod: page for pod, page in pages.items() if pod in ready}
        latency, answers = self._latencies.add(key, own, ready, now)
        return replace(reading, latency=latency, answers=float(answers))

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
        said = {pod: sample for pod, sample in samples.items() if sample is not None}
        heard = {pod: sample for pod, sample in said.items() if self._is_news(known, pod, sample)}
        if not heard:
            return None
        most = self._sampling.claim_limit * target.slots
        claims = [make_claim(known.get(pod), sample, most) for pod, sample in heard.items()]
        claims = without_outliers(claims, target.slots)
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

    def _is_news(self, known: Mapping[str, Sample], pod: str, sample: Sample) -> bool:
        """Whether the reading is none of before the last one: such a one is counted as rejected."""
        stale = pod in known and sample.at < known[pod].at
        self.rejected += stale
        return not stale
