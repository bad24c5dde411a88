"""A load: users of locust that together send requests at the rate of a shape. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from serving.loadtest.rates import Rate, Shape, make_rate

Kind = Literal["infer", "chat"]
PER_USER: Final = {"infer": 1.0, "chat": 0.1}
"""Maximum requests per second of one user. A user waits for its response, so responses may take up to the inverse
until the rate is not reached.
"""
FEWEST_USERS: Final = 20
"""Users at the full rate at least, so that a twentieth of it is one user."""
SAMPLES: Final = 20
"""Points of each second for the average of a rate."""


@dataclass(frozen=True, slots=True)
class Load:
    """A load of `seconds`: users that each send `pace` requests per second, as many as `rate` needs at a time."""

    rate: Rate
    seconds: float
    pace: float

    def users_at(self, moment: float) -> int:
        """Return the number of users for the second from `moment` on."""
        return round(self.average(moment, moment + 1.0) / self.pace)

    @property
    def peak_users(self) -> int:
        """Highest number of users."""
        return max(self.users_at(second) for second in range(math.ceil(self.seconds)))

    def average(self, first: float, last: float) -> float:
        """Return the average rate from `first` to `last` (seconds since the start)."""
        samples = math.ceil(SAMPLES * (last - first))
        step = (last - first) / samples
        return sum(self.rate(first + (sample + 0.5) * step) for sample in range(samples)) / samples


def make_load(shape: Shape, rate: float, seconds: float, kind: Kind, recorded: Sequence[float] = ()) -> Load:
    """Return the load of a shape for users of a kind; `make_rate` describes the other arguments.

    Example:
        >>> make_load("steady", 50.0, 60.0, "infer").users_at(0.0)
        50
    """
    users = max(FEWEST_USERS, math.ceil(rate / PER_USER[kind]))
    return Load(make_rate(shape, rate, seconds, recorded), seconds, rate / users)
