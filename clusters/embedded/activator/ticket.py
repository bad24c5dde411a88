"""One request's claim to be served."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True, eq=False)
class Ticket:
    """One request's claim to be served. `first`: it came to a revision without any endpoint and found nobody waiting.

    `held`: it had to wait. `refused`: an endpoint refused the connection, so it keeps its place in front. Times are
    seconds of the clock.
    """

    arrived: float
    deadline: float
    first: bool
    held: bool = False
    refused: bool = False
