"""How long a pool waits before it starts another member, after one failed or was refused: 1, 2, 4 … 60 s. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from autoscaler.warmpool.reasons import PoolReason, PoolRule
from clusters.base.backoff import Backoff

FIRST_WAIT: Final = 1.0
"""s; a quota is often freed in a second, by a Pod that was just ending."""
LONGEST_WAIT: Final = 60.0
"""s; a member that fails costs its start, and a person who repaired the cause waits no longer than this."""
_BACKOFF: Final = Backoff(FIRST_WAIT, LONGEST_WAIT)


@dataclass(frozen=True, slots=True)
class Pause:
    """What happened last, how often in a row, since when (wall time) and until when (monotonic seconds)."""

    rule: PoolRule
    values: Mapping[str, str]
    failures: int
    since: datetime
    until: float

    def holds(self, monotonic: float) -> bool:
        """Whether nothing may be started yet."""
        return monotonic < self.until

    @property
    def cause(self) -> PoolReason:
        """What happened."""
        return PoolReason(self.rule, self.values)

    @property
    def reason(self) -> PoolReason:
        """For the status: the whole wait too, not what is left of it, so that it does not change while it lasts."""
        what = f"{self.values['what']}: the next try is {wait_after(self.failures):g} s later"
        return PoolReason(self.rule, {**self.values, "what": what})


def wait_after(failures: int) -> float:
    """Seconds after that many failures in a row."""
    return _BACKOFF.delay(failures - 1)


def after_failure(
    former: Pause | None, rule: PoolRule, values: Mapping[str, str], now: datetime, monotonic: float
) -> Pause:
    """The next pause. Failures while one lasts are of the same batch, and count once."""
    if former is not None and former.holds(monotonic) and former.rule is rule:
        return former
    failures = 1 if former is None else former.failures + 1
    return Pause(rule, values, failures, now, monotonic + wait_after(failures))
