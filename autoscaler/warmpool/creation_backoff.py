"""Exponential back-off of a pool after a member failed or was rejected: 1, 2, 4 … 60 s. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from autoscaler.warmpool.reasons import PoolReason, PoolRule
from clusters.base.backoff import Backoff

FIRST_WAIT: Final = 1.0
"""Seconds; a terminating Pod often frees a quota within a second."""
LONGEST_WAIT: Final = 60.0
"""Seconds; a failing member costs its start, and this bounds the wait after the cause was fixed."""
_BACKOFF: Final = Backoff(FIRST_WAIT, LONGEST_WAIT)


@dataclass(frozen=True, slots=True)
class CreationBackoff:
    """The last failure, the number of failures in a row, their start (wall time) and the end of the wait (monotonic
    seconds).
    """

    rule: PoolRule
    values: Mapping[str, str]
    failures: int
    since: datetime
    until: float

    def holds(self, monotonic: float) -> bool:
        """Return whether no member may be started yet."""
        return monotonic < self.until

    @property
    def cause(self) -> PoolReason:
        """The last failure."""
        return PoolReason(self.rule, self.values)

    @property
    def reason(self) -> PoolReason:
        """The reason for the status. It contains the whole wait, not the remaining one, so that it does not change
        meanwhile.
        """
        what = f"{self.values['what']}: retrying after {wait_after(self.failures):g} s"
        return PoolReason(self.rule, {**self.values, "what": what})


def wait_after(failures: int) -> float:
    """Return the seconds to wait after that many failures in a row."""
    return _BACKOFF.delay(failures - 1)


def next_backoff(
    former: CreationBackoff | None, rule: PoolRule, values: Mapping[str, str], now: datetime, monotonic: float
) -> CreationBackoff:
    """Return the next back-off. Failures during a back-off belong to the same batch and count once."""
    if former is not None and former.holds(monotonic) and former.rule is rule:
        return former
    failures = 1 if former is None else former.failures + 1
    return CreationBackoff(rule, values, failures, now, monotonic + wait_after(failures))
