"""Compute the `Server-Timing` header of a held request: how its time was spent.

The stages are disjoint, and sum to the time from the request's arrival to the first byte of its response, in ms:

    queue    waiting for a free slot at an existing endpoint, or the whole wait of a request that joined a running start
    claim    from the arrival of the first request until a claimed member of a warm pool became its endpoint
    start    from the arrival of the first request until the Pod began to load: the scaling decision, the Pod, its
             process and imports, and the time from the end of the warm-up until the endpoint was known here
    load     the load of the model, as measured by the server (`/stats`: `startup.load`). A claimed member begins to
             load while it is being claimed; then only the part after the claim counts
    warmup   the warm-up of the model, likewise
    infer    from sending the request to the endpoint until the first byte of the response

Only the first request, which triggered the start, has `claim` or `start`, `load` and `warmup`. A cold start must fit
between the arrival of the request and that of the endpoint. Otherwise the Pod was already starting, and the request
joined it. Without a measurement of the server, the whole start is `start`.
"""

from __future__ import annotations

from dataclasses import dataclass

MS = 1000.0  # milliseconds in a second


@dataclass(frozen=True, slots=True)
class Startup:
    """The server's measurement of its start; durations in ms.

    `claimed`: the server was a member of a warm pool, and got its model by the load call. `loaded_at`: when that model
    was loaded, in seconds of the activator's clock. It is None while the model is being loaded, or if the server does
    not report it.
    """

    imports: float
    load: float
    warmup: float
    claimed: bool = False
    loaded_at: float | None = None

    @property
    def total(self) -> float:
        """The whole duration."""
        return self.imports + self.load + self.warmup

    @property
    def loading(self) -> bool:
        """Whether the server was claimed and has no model yet."""
        return self.claimed and self.loaded_at is None


@dataclass(frozen=True, slots=True)
class RequestTimes:
    """The times of one held request, in seconds of one clock: its arrival, when it was sent, and when the response
    began.

    `first`: it arrived at a revision without endpoints and with an empty queue. `endpoint_since`: when the endpoint
    that served it became known.
    """

    arrived: float
    sent: float
    answered: float
    first: bool
    endpoint_since: float


Stages = tuple[tuple[str, float], ...]
"""Pairs of name and duration in ms, in chronological order."""


def stages(times: RequestTimes, startup: Startup | None) -> Stages:
    """Return the stages of a request. None is negative, and they sum to `answered - arrived`."""
    start = (times.endpoint_since - times.arrived) * MS
    if not times.first or start <= 0:
        return _joined(times)
    if startup is not None and startup.claimed:
        return _claimed(times, startup)
    if startup is not None and startup.total > start:
        return _joined(times)
    load, warmup = (startup.load, startup.warmup) if startup is not None else (0.0, 0.0)
    return (
        ("start", start - load - warmup),
        ("load", load),
        ("warmup", warmup),
        ("queue", (times.sent - times.endpoint_since) * MS),
        ("infer", (times.answered - times.sent) * MS),
    )


def _joined(times: RequestTimes) -> Stages:
    return ("queue", (times.sent - times.arrived) * MS), ("infer", (times.answered - times.sent) * MS)


def _claimed(times: RequestTimes, startup: Startup) -> Stages:
    """Return the stages of a request to a claimed member, which loads its model before or after the request is sent to
    it.
    """
    since, sent, answered = times.endpoint_since, times.sent, times.answered
    loaded = since if startup.loaded_at is None else startup.loaded_at
    warm_from = loaded - startup.warmup / MS
    load_from = warm_from - startup.load / MS
    waited = [_overlap(span, (since, sent)) for span in ((load_from, warm_from), (warm_from, loaded))]
    served = [_overlap(span, (sent, answered)) for span in ((load_from, warm_from), (warm_from, loaded))]
    return (
        ("claim", (since - times.arrived) * MS),
        ("load", (waited[0] + served[0]) * MS),
        ("warmup", (waited[1] + served[1]) * MS),
        ("queue", max(0.0, sent - since - sum(waited)) * MS),
        ("infer", max(0.0, answered - sent - sum(served)) * MS),
    )


def _overlap(one: tuple[float, float], other: tuple[float, float]) -> float:
    """Return the seconds that two spans have in common."""
    return max(0.0, min(one[1], other[1]) - max(one[0], other[0]))


def header(spent: Stages) -> bytes:
    """Return the value of the header, as in `queue;dur=3.1, infer;dur=1.4` (W3C Server Timing)."""
    return ", ".join(f"{name};dur={duration:.1f}" for name, duration in spent).encode()
