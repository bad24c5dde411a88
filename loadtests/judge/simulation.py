"""Simulation of many whole rollouts at once, as arrays, to measure the judge.

Requests are a Poisson stream with independent errors and lognormal latencies. The judge decides at every interval. A
step whose time is over waits until it passes or fails (`onInsufficientTraffic: hold`; with `promote` it passes). In
attacks, an adversary sends as many requests again (`loadtests.judge.adversary`). `verdicts` is
`serving.reconciler.rollout.judging.judge` in the form of arrays, with the same limits and bounds; a test compares both.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from clusters.base.latency_buckets import PER_OCTAVE, bucket_of, upper_edge
from loadtests.judge.adversary import RESTARTS, Attack, Effect, effect_of, errors_of_crash
from serving.reconciler.rollout.judging.bounds import Array, Pair, evidence_above, evidence_below, evidence_of_rate
from serving.reconciler.rollout.judging.judge import TO_HOLD, error_limits, ratio_in_buckets, slow_limits
from serving.reconciler.rollout.judging.verdict import JudgedStep
from serving.types.rollout import Judge, Rollout

Flags: TypeAlias = NDArray[np.bool_]
Whole: TypeAlias = NDArray[np.int64]

MEDIAN = 0.05
"""Latency of the stable version in seconds."""
SPREAD = 3.7
"""Range of the histogram around the mean, in standard deviations of the logarithm."""
PAUSE = 1.0
"""Latency in seconds of some responses of both versions."""
LONGEST = 86_400.0
"""Simulated seconds after which a rollout counts as held."""


@dataclass(frozen=True, slots=True)
class World:
    """Error rates of both versions, latency ratio of the candidate to the stable version, and the spread of its
    logarithm.

    `outage` is the additional share of failed requests of both from 60 s to 120 s, `pauses` the share of responses of
    both that take a second.
    """

    stable_errors: float = 0.001
    candidate_errors: float = 0.001
    slower: float = 1.0
    sigma: float = 0.5
    outage: float = 0.0
    pauses: float = 0.0

    def errors(self, now: float) -> tuple[float, float]:
        """Return the error rates of both versions `now` seconds after the start."""
        more = self.outage if 60.0 <= now < 120.0 else 0.0
        return min(self.stable_errors + more, 1.0), min(self.candidate_errors + more, 1.0)


@dataclass(frozen=True, slots=True)
class Tallies:
    """Counts of one version in many rollouts: a row for each rollout, and a column for each latency bucket."""

    requests: Array
    errors: Array
    latency: Array

    @classmethod
    def none(cls, rows: int, buckets: int) -> Tallies:
        """Return counts without requests."""
        return cls(np.zeros(rows), np.zeros(rows), np.zeros((rows, buckets)))

    def at(self, rows: Flags) -> Tallies:
        """Return these rows."""
        return Tallies(self.requests[rows], self.errors[rows], self.latency[rows])

    def add(self, other: Tallies) -> None:
        """Add counts."""
        for mine, more in zip(self._arrays, other._arrays, strict=True):
            mine += more

    def clear(self, rows: Flags) -> None:
        """Reset these rows."""
        for mine in self._arrays:
            mine[rows] = 0.0

    @property
    def _arrays(self) -> tuple[Array, Array, Array]:
        return self.requests, self.errors, self.latency


@dataclass(frozen=True, slots=True)
class Outcomes:
    """The result of each rollout: +1 promoted, -1 rolled back, 0 held; its time in seconds, and its requests until
    then.
    """

    decided: Whole
    seconds: Array
    requests: Array

    @property
    def promoted(self) -> float:
        """Share of the rollouts."""
        return float(np.mean(self.decided == 1))

    @property
    def rolled_back(self) -> float:
        """Share of the rollouts."""
        return float(np.mean(self.decided == -1))


def verdicts(rule: Judge, stable: Tallies, candidate: Tallies, stage: JudgedStep, over: Flags) -> tuple[Flags, Flags]:
    """Return (fails, passes) of each row at one stage; `over` is true if the time of the stage is over.

    Rows with neither wait, or are held because the stable version is broken.
    """
    compared = ~broken_rows(rule, stable)
    errors, slow = error_limits(rule, stage), slow_limits(rule, stage)
    up, down = ratio_in_buckets(rule.max_latency_ratio)
    pair = Pair(stable.errors, stable.requests, candidate.errors, candidate.requests)
    lenient, timed = _slow(rule, stable, candidate, up)
    strict, _ = _slow(rule, stable, candidate, down)
    worse, slower = pair.difference > errors.allowed, timed & (lenient.difference > slow.allowed)
    fails = _surely(evidence_above, pair, errors.allowed, errors.to_fail, compared & worse)
    fails |= _surely(evidence_above, lenient, slow.allowed, slow.to_fail, compared & slower)
    passes = _surely(evidence_below, pair, errors.harm, errors.to_pass, compared & over & ~fails)
    untimed = passes & ~timed & (stage.stable_share == 0.0)
    return fails, untimed | _surely(evidence_below, strict, slow.harm, slow.to_pass, passes & timed)


def broken_rows(rule: Judge, stable: Tallies) -> Flags:
    """Return the rows in which the stable version is not a valid reference."""
    evidence = evidence_of_rate(stable.errors, stable.requests, rule.max_stable_error_rate)
    return np.asarray(evidence >= TO_HOLD)


def _surely(evidence: Callable[[Pair, float], Array], pair: Pair, margin: float, enough: float, rows: Flags) -> Flags:
    """Return the rows with enough evidence."""
    found = np.zeros_like(rows)
    chosen = Pair(pair.stable_hits[rows], pair.stable[rows], pair.candidate_hits[rows], pair.candidate[rows])
    found[rows] = evidence(chosen, margin) >= enough
    return found


def _slow(rule: Judge, stable: Tallies, candidate: Tallies, buckets: int) -> tuple[Pair, Flags]:
    """Return the slow responses of both versions, and the rows in which the stable version has any responses."""
    below, all_below = stable.latency.cumsum(axis=1), candidate.latency.cumsum(axis=1)
    timed, candidates = below[:, -1], all_below[:, -1]
    bucket = np.argmax(below >= np.ceil(rule.quantile * timed)[:, None], axis=1)
    rows = np.arange(len(bucket))
    beyond = np.minimum(bucket + buckets, below.shape[1] - 1)
    pair = Pair(timed - below[rows, bucket], timed, candidates - all_below[rows, beyond], candidates)
    return pair, timed > 0.0


class RolloutSimulation:
    """Many rollouts in one world at `rate` requests per second to both versions together."""

    def __init__(
        self, world: World, rollout: Rollout, rate: float, rollouts: int, seed: int, attacks: tuple[Attack, ...] = ()
    ) -> None:
        self._world, self._rollout, self._rate, self._attacks = world, rollout, rate, attacks
        self._random = np.random.default_rng(seed)
        self._first, self._chances = _chances(world, attacks)
        self._effects: dict[tuple[str, int, float], Effect] = {}
        buckets = self._chances[0].size
        self._stable, self._candidate = Tallies.none(rollouts, buckets), Tallies.none(rollouts, buckets)
        self._step = np.zeros(rollouts, dtype=np.int64)
        self._began = np.zeros(rollouts)
        self._result = Outcomes(np.zeros(rollouts, dtype=np.int64), np.full(rollouts, math.inf), np.zeros(rollouts))
        self._open = np.ones(rollouts, dtype=np.bool_)

    def run(self, longest: float = LONGEST) -> Outcomes:
        """Judge at every interval until all rollouts are decided, or `longest` seconds are over."""
        now, interval = 0.0, self._rollout.judge.interval
        while now < longest and self._open.any():
            rates = self._world.errors(now)
            killed = any(now <= at < now + interval for at in RESTARTS)  # several between two decisions are one
            now += interval
            for number in range(len(self._rollout.steps)):
                rows = self._open & (self._step == number)
                if rows.any():
                    self._arrive(rows, number, rates, killed)
            for number in reversed(range(len(self._rollout.steps))):  # so that none moves twice at one decision
                rows = self._open & (self._step == number)
                if rows.any():
                    self._look(rows, number, now)
        return self._result

    def _arrive(self, rows: Flags, number: int, errors: tuple[float, float], killed: bool) -> None:
        share = self._rollout.steps[number] / 100
        total = self._rate * self._rollout.judge.interval
        for version, tallies, mean, rate, chances in zip(
            ("stable", "candidate"),
            (self._stable, self._candidate),
            (total * (1.0 - share), total * share),
            errors,
            self._chances,
            strict=True,
        ):
            failed = self._random.poisson(mean * rate, int(rows.sum())).astype(np.float64)
            latency = self._latencies(mean * (1.0 - rate), failed.size, chances)
            answered = latency.sum(axis=1)
            tallies.requests[rows] += failed + answered
            tallies.errors[rows] += failed
            tallies.latency[rows] += latency
            if tallies is self._candidate:
                self._result.requests[rows] += failed + answered
            if killed and any(one.kills and one.to == version for one in self._attacks):
                crashed = np.where(failed + answered > 0, errors_of_crash(1), errors_of_crash(0))
                tallies.requests[rows] += crashed
                tallies.errors[rows] += crashed

        for attack in self._attacks:
            for number, (tallies, part) in enumerate(((self._stable, 1.0 - share), (self._candidate, share))):
                if attack.to is not None:
                    part = float(attack.to == ("stable", "candidate")[number])
                self._attack(attack, number, tallies, rows, total * part / len(self._attacks), errors[number])

    def _attack(
        self, attack: Attack, number: int, tallies: Tallies, rows: Flags, mean: float, error_rate: float
    ) -> None:
        """Add `mean` requests of the attack on average; `number` is 0 for the stable version, 1 for the candidate."""
        key = (attack.what, number, error_rate)
        if key not in self._effects:
            self._effects[key] = effect_of(attack, error_rate, self._chances[number], self._first)
        effect, size = self._effects[key], int(rows.sum())
        failed = self._random.poisson(mean * effect.errors, size).astype(np.float64)
        answered, left = (
            self._random.poisson(mean * one, (size, one.size)) if one.any() else np.zeros((size, one.size))
            for one in (effect.answered, effect.left)
        )
        tallies.requests[rows] += failed + answered.sum(axis=1)
        tallies.errors[rows] += failed
        tallies.latency[rows] += answered + left

    def _latencies(self, mean: float, rows: int, chances: Array) -> Whole:
        """Draw responses by row and bucket, `mean` per row on average: a few one by one, many by bucket."""
        if mean > chances.size:
            return self._random.poisson(mean * chances, (rows, chances.size))
        answers = np.repeat(np.arange(rows), self._random.poisson(mean, rows))
        bucket = np.searchsorted(chances.cumsum()[:-1], self._random.random(answers.size))
        return np.bincount(answers * chances.size + bucket, minlength=rows * chances.size).reshape(rows, chances.size)

    def _look(self, rows: Flags, number: int, now: float) -> None:
        steps = self._rollout.steps
        stage = JudgedStep(steps[number], len(steps), True)
        over = now - self._began[rows] >= self._rollout.step_duration
        fails, passes = verdicts(self._rollout.judge, self._stable.at(rows), self._candidate.at(rows), stage, over)
        if self._rollout.on_insufficient_traffic == "promote":
            candidate = self._candidate.at(rows)
            unanswered = (candidate.requests == candidate.errors) & (candidate.requests + candidate.latency.sum(1) > 0)
            passes |= over & ~fails & ~unanswered & ~broken_rows(self._rollout.judge, self._stable.at(rows))
        places = np.flatnonzero(rows)
        self._close(places[fails], -1, now)
        if number + 1 == len(steps):
            self._close(places[passes], 1, now)
        else:
            self._advance(places[passes], number + 1, now)

    def _close(self, places: Whole, decided: int, now: float) -> None:
        self._result.decided[places] = decided
        self._result.seconds[places] = now
        self._open[places] = False

    def _advance(self, places: Whole, number: int, now: float) -> None:
        self._step[places] = number
        self._began[places] = now
        moved = np.zeros_like(self._open)
        moved[places] = True
        self._candidate.clear(moved)
        if self._rollout.steps[number] < 100:
            self._stable.clear(moved)


def _chances(world: World, attacks: tuple[Attack, ...] = ()) -> tuple[int, tuple[Array, Array]]:
    """Return the first bucket, and the probability of each bucket from there, of the stable version and of the
    candidate.
    """
    first = bucket_of(MEDIAN * math.exp(-SPREAD * world.sigma))
    last = bucket_of(MEDIAN * world.slower * math.exp(SPREAD * world.sigma))
    last = max(last, bucket_of(PAUSE)) if world.pauses else last
    last += max((math.ceil(math.log2(one.slower) * PER_OCTAVE) for one in attacks), default=0)
    edges = [upper_edge(bucket) for bucket in range(first, last)]

    def of(median: float) -> Array:
        below = [0.5 * math.erfc(-math.log(edge / median) / world.sigma / math.sqrt(2.0)) for edge in edges]
        chances = np.diff([0.0, *below, 1.0]) * (1.0 - world.pauses)
        chances[min(bucket_of(PAUSE), last) - first] += world.pauses
        return chances

    return first, (of(MEDIAN), of(MEDIAN * world.slower))
