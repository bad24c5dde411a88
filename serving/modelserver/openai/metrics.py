"""Metrics of language models: tokens, time to first token, time between tokens. Only the event loop may use them."""

from __future__ import annotations

from typing import Final

from clusters.net.exposition import Buckets, Family, Histogram
from serving.modelserver.base.latency import BucketCounter
from serving.modelserver.openai.tokens import TokenUsage

FIRST_TOKEN_BOUNDS: Final = (
    0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0, 40.0, 80.0,
)  # fmt: skip
TOKEN_BOUNDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.015, 0.02, 0.03, 0.04, 0.05, 0.075, 0.1, 0.2, 0.5, 1.0, 2.5)
"""Bounds in seconds, close to those of vLLM's own histograms."""


class LlmMetrics:
    """Counts the tokens of responses, and their times in seconds."""

    def __init__(self) -> None:
        self.prompt_tokens = 0
        self.completion_tokens = 0
        self._first = BucketCounter(FIRST_TOKEN_BOUNDS)
        self._between = BucketCounter(TOKEN_BOUNDS)

    def count(self, usage: TokenUsage) -> None:
        """Count the tokens of a response."""
        self.prompt_tokens += usage.prompt
        self.completion_tokens += usage.completion

    def first_token(self, seconds: float) -> None:
        """Count a first token, by the time since the complete request."""
        self._first.add(seconds)

    def between_tokens(self, seconds: float) -> None:
        """Count the mean time between two tokens of a response."""
        self._between.add(seconds)

    def families(self, revision: str) -> list[Family | Histogram]:
        """Return the metric families for the page; none before the first response of a language model."""
        if not (self._first.total or self.prompt_tokens or self.completion_tokens):
            return []
        labels = {"revision": revision}
        tokens = (
            ({**labels, "kind": "prompt"}, float(self.prompt_tokens)),
            ({**labels, "kind": "completion"}, float(self.completion_tokens)),
        )
        first = (Buckets(labels, tuple(self._first.counts), self._first.sum),)
        between = (Buckets(labels, tuple(self._between.counts), self._between.sum),)
        return [
            Family("knodel_llm_tokens_total", "counter", "Tokens of prompts and of completions.", tokens),
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
