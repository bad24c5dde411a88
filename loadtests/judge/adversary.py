"""An adversary that sends half of all requests to force a wrong verdict.

It may use any address, tag, header and body, may disconnect before the response, and may read slowly. It cannot choose
the version of the traffic split. The counts of its requests come from the model server's own rules
(`serving.modelserver.base.split`), as applied by the server's middleware.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from clusters.base.latency_buckets import upper_edge
from clusters.net.server.errors import RECEIVED_KEY
from serving.modelserver.base.errors import ClientLeft
from serving.modelserver.base.split import SplitStats, is_of_split
from serving.reconciler.rollout.judging.bounds import Array
from serving.reconciler.rollout.judging.counts import Counts
from serving.reconciler.rollout.judging.readings import Reading, Seen, answered_since, remembered

Version = Literal["stable", "candidate"]
MARK = {"knative-serving-default-route": "true"}
"""The header that the ingress sets for requests of the split. A caller may forge it on other addresses."""
INSTANT = 0.001
"""Seconds of a request that the server rejects before it reads the body."""


@dataclass(frozen=True, slots=True)
class Attack:
    """One kind of request. `to` is the version of a tag; without it, the split chooses.

    `status` is the status of the response, None for a valid body with a usual response. Such a response takes `slower`
    times as long. The caller disconnects after `leaves` seconds, reads the response `reads` seconds late, and sends the
    body in `sends` seconds. With `kills`, each such request ends the process of the replica, and the kubelet restarts
    it; `serving.reconciler.rollout.judging.readings` counts this.
    """

    what: str
    headers: Mapping[str, str] = field(default_factory=lambda: MARK)
    to: Version | None = None
    status: int | None = None
    slower: float = 1.0
    leaves: float = float("inf")
    reads: float = 0.0
    sends: float = 0.0
    kills: bool = False


def tagged(version: Version) -> Mapping[str, str]:
    """Headers of a request to a tag, with a forged header of the ingress."""
    return {**MARK, "knative-serving-tag": version}


ATTACKS: tuple[Attack, ...] = (
    Attack("malformed bodies", status=400),
    Attack("bodies that are too large", status=413),
    Attack("more than the queue holds", status=429),
    Attack("valid bodies"),
    Attack("valid bodies that take 40 times as long", slower=40.0),
    Attack("valid bodies, sent within a minute", sends=60.0),
    Attack("valid bodies, answers read after a minute", reads=60.0),
    Attack("callers that leave at once", leaves=INSTANT),
    Attack("callers that leave when half are answered", leaves=0.05),
    Attack("bodies on which either version fails", status=500),
    Attack("malformed bodies to candidate", tagged("candidate"), "candidate", 400),
    Attack("bodies to candidate on which it fails", tagged("candidate"), "candidate", 500),
    Attack("slow bodies to candidate", tagged("candidate"), "candidate", slower=40.0),
    Attack("good bodies to candidate", tagged("candidate"), "candidate"),
    Attack("bodies to stable on which it fails", tagged("stable"), "stable", 500),
    Attack("slow bodies to stable", tagged("stable"), "stable", slower=40.0),
    Attack("bodies to candidate that end its process", tagged("candidate"), "candidate", 500, kills=True),
    Attack("bodies to stable that end its process", tagged("stable"), "stable", 500, kills=True),
    Attack("failing bodies past the ingress", {}, "candidate", 500),
)
"""The attacks. Each one, or all in equal parts, is half of all requests."""


RESTARTS = (0.0, 0.0, 10.0, 30.0)
"""Seconds after its start at which an attack ends a process.

The next restart takes 80 s, longer than a version may be down (`serving.reconciler.rollout.schedule.MOST_DOWN`). Faster
attacks would roll the version back for its missing replicas.
"""


def errors_of_crash(served: int) -> int:
    """Return the errors of a process that ends after `served` responses to requests of the split."""
    before: Seen = {"pod": Reading("revision", "before", Counts())}
    last = remembered(before, {"pod": Reading("revision", "before", Counts(served))}, {"pod"})
    return answered_since(last, {"pod": Reading("revision", "after", Counts())})["revision"].errors


@dataclass(frozen=True, slots=True)
class Effect:
    """The average counts of one request: errors, responses by bucket, and disconnected callers by bucket."""

    errors: float
    answered: Array
    left: Array


def effect_of(attack: Attack, error_rate: float, chances: Array, first: int) -> Effect:
    """Return the counts of a request to a version with this error rate, whose latency is in bucket `first + i` with
    probability `chances[i]`.
    """
    errors, answered, left = 0.0, np.zeros_like(chances), np.zeros_like(chances)
    for place, chance in enumerate(chances):
        seconds = upper_edge(first + place) * attack.slower
        for status, share in _answers(attack, error_rate):
            page = _counted(attack, status, seconds)
            errors += page["errors"] * chance * share
            for bucket, count in page["latency"].items():
                column = min(max(int(bucket) - first, 0), chances.size - 1)
                kind = left if page["left"] else answered
                kind[column] += count * chance * share
    return Effect(errors, answered, left)


def _answers(attack: Attack, error_rate: float) -> tuple[tuple[int, float], ...]:
    return ((500, error_rate), (200, 1.0 - error_rate)) if attack.status is None else ((attack.status, 1.0),)


def _counted(attack: Attack, status: int, seconds: float) -> dict[str, Any]:
    """Return the page of the server's metrics after the request."""
    took = INSTANT if attack.status is not None else seconds
    split = SplitStats(lambda: 0.0)
    if is_of_split([(name.encode(), value.encode()) for name, value in attack.headers.items()]):
        entry = split.begin({RECEIVED_KEY: attack.sends}, 0.0)
        if took > attack.leaves:
            split.end(entry, ClientLeft.status, attack.sends + attack.leaves)
        else:
            entry.answered_at = attack.sends + took
            split.end(entry, status, attack.sends + took + attack.reads)
    return split.to_json()
