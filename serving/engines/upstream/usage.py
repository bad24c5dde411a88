"""The tokens that the responses of a language model tell, and their totals."""

from __future__ import annotations

import threading
from typing import Any

import msgspec


class TokenUsage(msgspec.Struct, frozen=True):
    """Tokens of the prompt and of the answer."""

    prompt: int = 0
    completion: int = 0

    def to_json(self) -> dict[str, int]:
        """Return the entry of the page `/stats`."""
        return {"prompt": self.prompt, "completion": self.completion}


class TokenCounter:
    """The tokens of all responses of a model. Threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._total = TokenUsage()

    @property
    def total(self) -> TokenUsage:
        """The tokens so far."""
        return self._total

    def add(self, usage: TokenUsage) -> None:
        """Count the tokens of a response."""
        with self._lock:
            total = self._total
            self._total = TokenUsage(total.prompt + usage.prompt, total.completion + usage.completion)


def usage_of(answer: Any) -> TokenUsage | None:
    """Return what a decoded response, or an event of a stream, tells of its tokens; None if it tells nothing."""
    if not isinstance(answer, dict):
        return None
    inner = answer.get("response")
    used = answer.get("usage") or (inner.get("usage") if isinstance(inner, dict) else None)
    if isinstance(used, dict):
        prompt = _count(used, "prompt_tokens", "input_tokens")
        completion = _count(used, "completion_tokens", "output_tokens")
        if prompt or completion:
            return TokenUsage(prompt, completion)
    times = answer.get("timings")  # llama.cpp's, where a stream has no usage
    if isinstance(times, dict):
        return TokenUsage(_count(times, "prompt_n") + _count(times, "cache_n"), _count(times, "predicted_n"))
    return None


def _count(values: dict[str, Any], *names: str) -> int:
    found = next((values[name] for name in names if isinstance(values.get(name), int)), 0)
    return max(0, int(found))
