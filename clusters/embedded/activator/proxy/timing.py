"""The `Server-Timing` of an answer that was held: where its time went. Pure.

Stages are disjoint and sum to the time from the request's arrival to the answer's first byte; milliseconds.

    queue    waiting for room at an endpoint that was there; or the whole wait of a request that joined a running start
    claim    from the arrival that woke the revision until a member of a warm pool was its endpoint
    start    from the arrival that woke the revision until the Pod began to load: the decision to scale, the Pod, its
             process and imports, and what passed between the end of its warm-up and the endpoint's arrival here
    load     the model's load, as the server measured it (`/stats`: `startup.load`); of a claimed member, which begins
             to load while it is being claimed, as much of it as came after the claim
    warmup   its warm-up, likewise
    infer    from passing the request on to the answer's first byte

Only the request that woke the revision reports `claim` or `start`, `load` and `warmup`. A cold start must fit between
its arrival and the endpoint's: else the Pod had been starting before it came, and it joined. Without measurement of
the server all of a start is `start`.
"""

from __future__ import annotations

from dataclasses import dataclass

MS = 1000.0  # milliseconds in a second


@dataclass(frozen=True, slots=True)
class Startup:
    """How long a server's start took, by its own measurement; milliseconds.

    `claimed`: it was a member of a warm pool and got its model by the load call. `loaded_at`: when that model was
    loaded, in seconds of the activator's clock; None while it loads, or where the server does not say.
    """

    imports: float
    load: float
    warmup: float
    claimed: bool = False
    loaded_at: float | None = None

    @property
    def total(self) -> float:
        """All of it."""
        return self.imports + self.load + self.warmup

    @property
    def loading(self) -> bool:
        """Whether it has been claimed and has no model yet."""
        return self.claimed and self.loaded_at is None


@dataclass(frozen=True, slots=True)
class Held:
    """The moments of one held request, in seconds on one clock: it came, was passed on, was answered.

    `woke`: it came to a revision without endpoints and found nobody waiting. `endpoint_since`: when the endpoint that
    served it became known.
    """

    arrived: float
    sent: float
    answered: float
    woke: bool
    endpoint_since: float


Stages = tuple[tuple[str, float], ...]
"""(name, milliseconds), in the order in which they passed."""


def stages(held: Held, startup: Startup | None) -> Stages:
    """Where the time went; none is negative, and they sum to `answered - arrived`."""
    start = (held.endpoint_since - held.arrived) * MS
    if not held.woke or start <= 0:
        return _joined(held)
    if startup is not None and startup.claimed:
        return _claimed(held, startup)
    if startup is not None and startup.total > start:
        return _joined(held)
    load, warmup = (startup.load, startup.warmup) if startup is not None else (0.0, 0.0)
    return (
        ("start", start - load - warmup),
        ("load", load),
        ("warmup", warmup),
        ("queue", (held.sent - held.endpoint_since) * MS),
        ("infer", (held.answered - held.sent) * MS),
    )


def _joined(held: Held) -> Stages:
    return ("queue", (held.sent - held.arrived) * MS), ("infer", (held.answered - held.sent) * MS)


def _claimed(held: Held, startup: Startup) -> Stages:
    """Before it was passed on the request waited for the model here, after that, if still, at the server."""
    since, sent, answered = held.endpoint_since, held.sent, held.answered
    loaded = since if startup.loaded_at is None else startup.loaded_at
    warm_from = loaded - startup.warmup / MS
    load_from = warm_from - startup.load / MS
    waited = [_overlap(span, (since, sent)) for span in ((load_from, warm_from), (warm_from, loaded))]
    served = [_overlap(span, (sent, answered)) for span in ((load_from, warm_from), (warm_from, loaded))]
    return (
        ("claim", (since - held.arrived) * MS),
        ("load", (waited[0] + served[0]) * MS),
        ("warmup", (waited[1] + served[1]) * MS),
        ("queue", max(0.0, sent - since - sum(waited)) * MS),
        ("infer", max(0.0, answered - sent - sum(served)) * MS),
    )


def _overlap(one: tuple[float, float], other: tuple[float, float]) -> float:
    """Seconds that two spans have in common."""
    return max(0.0, min(one[1], other[1]) - max(one[0], other[0]))


def header(spent: Stages) -> bytes:
    """The header's value, as in `queue;dur=3.1, infer;dur=1.4` (W3C Server Timing)."""
    return ", ".join(f"{name};dur={duration:.1f}" for name, duration in spent).encode()
