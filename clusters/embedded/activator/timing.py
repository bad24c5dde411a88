"""The `Server-Timing` of an answer that was held: where its time went. Pure.

Stages are disjoint and sum to the time from the request's arrival to the answer's first byte; milliseconds.

    queue    waiting for room at an endpoint that was there; or the whole wait of a request that joined a running start
    start    from the arrival that woke the revision until the Pod began to load: the decision to scale, the Pod, its
             process and imports, and what passed between the end of its warm-up and the endpoint's arrival here
    load     the model's load, as the server measured it (`/stats`: `startup.load`)
    warmup   its warm-up, likewise
    infer    from passing the request on to the answer's first byte

Only the request that woke the revision reports `start`, `load` and `warmup`, and only if that start fits between its
arrival and the endpoint's: else the Pod had been starting before it came, and it joined. Without measurement of the
server all of the start is `start`. `claim` (of a warm Pod) is the control plane's to tell and absent so far.
"""

from __future__ import annotations

from dataclasses import dataclass

MS = 1000.0  # milliseconds in a second


@dataclass(frozen=True, slots=True)
class Startup:
    """How long a server's start took, by its own measurement; milliseconds."""

    imports: float
    load: float
    warmup: float

    @property
    def total(self) -> float:
        """All of it."""
        return self.imports + self.load + self.warmup


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
    infer = ("infer", (held.answered - held.sent) * MS)
    start = (held.endpoint_since - held.arrived) * MS
    joined = not held.woke or start <= 0 or (startup is not None and startup.total > start)
    if joined:
        return ("queue", (held.sent - held.arrived) * MS), infer
    load, warmup = (startup.load, startup.warmup) if startup is not None else (0.0, 0.0)
    return (
        ("start", start - load - warmup),
        ("load", load),
        ("warmup", warmup),
        ("queue", (held.sent - held.endpoint_since) * MS),
        infer,
    )


def header(spent: Stages) -> bytes:
    """The header's value, as in `queue;dur=3.1, infer;dur=1.4` (W3C Server Timing)."""
    return ", ".join(f"{name};dur={duration:.1f}" for name, duration in spent).encode()
