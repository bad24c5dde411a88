"""The weight of a request from its tokens, once the rates of the engine were measured.

A request weighs its expected seconds, relative to those of a mean request: prompt tokens ÷ prefill rate + expected
answer ÷ decode rate. The expected answer is `max_tokens`, at most the mean answer. The mean weight is 1, so a weight is
a number of slots, and the same `scaleTarget` applies to weights and to requests.
"""

from __future__ import annotations

from dataclasses import dataclass

ENOUGH = 50
"""Answers after which rates count as measured. Until then, each request weighs 1."""
FADE = 0.998
"""Factor of the influence of a request with each later one: about the last 500 requests count."""


@dataclass(slots=True)
class FadingRatio:
    """The ratio of two sums in which later values have more influence."""

    above: float = 0.0
    below: float = 0.0

    def add(self, above: float, below: float) -> None:
        """Add one request."""
        self.above = self.above * FADE + above
        self.below = self.below * FADE + below

    @property
    def value(self) -> float:
        """Return the ratio; 0 without values."""
        return self.above / self.below if self.below else 0.0


class Weigher:
    """The weights of one model's requests. `knows_answers`: the length of each answer is known in advance."""

    def __init__(self, *, knows_answers: bool = False) -> None:
        self._knows = knows_answers
        self._prefill, self._decode = FadingRatio(), FadingRatio()  # seconds per token
        self._answer, self._cost = FadingRatio(), FadingRatio()
        self._answered = 0

    def weigh(self, prompt: int, max_tokens: int, generated: int) -> float:
        """Return the weight of a request in slots. `generated` is only used when answers are known."""
        if self._answered < ENOUGH:
            return 1.0
        answer = generated if self._knows else min(max_tokens, self._answer.value)
        cost = prompt * self._prefill.value + answer * self._decode.value
        self._cost.add(cost, 1.0)
        return cost / self._cost.value if cost > 0.0 else 1.0

    def record(self, prompt: int, prefill_seconds: float, generated: int, decode_seconds: float) -> None:
        """Record an answered request: the seconds to its first token, and from there to its last."""
        self._answered += 1
        self._prefill.add(prefill_seconds, prompt)
        self._decode.add(decode_seconds, max(0, generated - 1))
        self._answer.add(generated, 1.0)
