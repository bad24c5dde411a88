"""The times of the tokens of a streamed answer. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from serving.client.inference import chat


class TokenTimes:
    """Counts and times the tokens of an answer that was requested at `began`, in seconds of any clock.

    A server that does not report the number of tokens mostly sends one with each chunk.
    """

    def __init__(self, began: float) -> None:
        self._began = began
        self._times: list[float] = []
        self._usage: dict[str, Any] = {}
        self.reason = ""
        """Why the answer ended, such as `stop` or `length`."""

    def observe(self, chunk: Mapping[str, Any], now: float) -> None:
        """Count a chunk that arrived at `now`."""
        if chat.text_of(chunk):
            self._times.append(now)
        self._usage = chat.usage_of(chunk) or self._usage
        self.reason = chat.finish_reason_of(chunk) or self.reason

    @property
    def count(self) -> int:
        """Number of tokens."""
        tokens = self._usage.get("completion_tokens")
        return tokens if isinstance(tokens, int) else len(self._times)

    @property
    def to_first(self) -> float | None:
        """Seconds from the request to the first token (TTFT); None without a token."""
        return self._times[0] - self._began if self._times else None

    @property
    def per_token(self) -> float | None:
        """Seconds per token after the first (TPOT); None for fewer than two tokens, or if all arrived at once."""
        seconds = self._times[-1] - self._times[0] if self._times else 0.0
        return seconds / (self.count - 1) if self.count > 1 and seconds > 0 else None
