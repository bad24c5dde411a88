"""Count the tokens that the replicas of a language model processed between two readings. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from autoscaler.metrics.stat import Sample, Tokens

MOST_A_SECOND: Final = 1e7
"""Tokens of each kind that a replica can have in a second; a prompt of which the engine kept all counts at once."""
FIRST_READING: Final = 60.0
"""Seconds that the first reading of a new replica covers at most."""
_NONE: Final = Tokens(0.0, 0.0)


class TokenReadings:
    """The last totals of each replica. Pods are named `namespace/name`."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[float, Tokens]] = {}
        self._present: frozenset[str] = frozenset()
        self._old: frozenset[str] | None = None  # Pods of the first call of `watch`; None before it

    def watch(self, pods: Iterable[str]) -> None:
        """Set the present Pods. Those of the first call may have tokens of earlier, which do not count."""
        self._present = frozenset(pods)
        self._old = self._present if self._old is None else self._old & self._present

    def growth(self, samples: Mapping[str, Sample]) -> Tokens:
        """Return the tokens since the last call, from the last reading of each ready replica.

        A total that falls is that of a process that has started again from 0.
        """
        prompt = completion = 0.0
        for pod in [pod for pod in self._last if pod not in samples and pod not in self._present]:
            del self._last[pod]
        for pod, sample in samples.items():
            total = sample.tokens
            if total is None:
                continue
            if pod not in self._last and (self._old is None or pod in self._old):
                self._last[pod] = sample.at, total
            at, before = self._last.get(pod, (sample.at - FIRST_READING, _NONE))
            if total.prompt < before.prompt or total.completion < before.completion:
                before = _NONE
            most = MOST_A_SECOND * max(0.0, sample.at - at)
            prompt += min(total.prompt - before.prompt, most)
            completion += min(total.completion - before.completion, most)
            self._last[pod] = sample.at, total
        return Tokens(prompt, completion)
