"""Metrics of language models: time to first token, time between tokens. Only the event loop may use them."""

from __future__ import annotations

from typing import Final

from clusters.net.exposition import Buckets, Histogram
from serving.modelserver.base.latency import BucketCounter

FIRST_TOKEN_BOUNDS: Final = (
    0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0, 40.0, 80.0,
)  # fmt: skip
TOKEN_BOUNDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.015, 0.02, 0.03, 0.04, 0.05, 0.075, 0.1, 0.2, 0.5, 1.0, 2.5)
"""Bounds in seconds, close to those of vLLM's own histograms."""


class LlmMetrics:
    """Counts the times of tokens, in seconds."""

    def __init__(self) -> None:
        self._first = BucketCounter(FIRST_TOKEN_BOUNDS)
        self._between = BucketCounter(TOKEN_BOUNDS)

    def first_token(self, seconds: float) -> None:
        """Count a first token, by the time since the complete request."""
        self._first.add(seconds)

    def between_tokens(self, seconds: float) -> None:
        """Count the mean time between two tokens of a response."""
        self._between.add(seconds)

    def families(self, revision: str) -> list[Histogram]:
        """Return the metric families for the page; none before the first streamed response of a language model."""
        if not self._first.total:
            return []
        labels = {"revision": revision}
        first = (Buckets(labels, tuple(self._first.counts), self._first.sum),)
        between = (Buckets(labels, tuple(self._between.counts), self._between.sum),)
        return [
            Histogram(
                "knodel_llm_first_token_seconds",
                "Time from a complete request to the first token of a streamed answer, in seconds.",
                FIRST_TOKEN_BOUNDS, first,
            ),
            Histogram(
                "knodel_llm_token_seconds", "Mean time between two tokens of a streamed answer, in seconds.",
                TOKEN_BOUNDS, between,
            ),
        ]  # fmt: skip
