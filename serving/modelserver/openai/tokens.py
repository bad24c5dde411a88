"""What the responses of a language model tell: when the first token came, how many there were. Pure.

An event counts as a token once the first text has come: engines send one for each token. The numbers of a response's
`usage` replace this count where it has them.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from serving.engines.upstream.usage import TokenUsage, usage_of

_DECODE: Final = msgspec.json.Decoder().decode
_END: Final = b"\n\n"
_DATA: Final = b"data:"
_DONE: Final = b"[DONE]"
_ERRORS: Final = (b'data: {"error"', b"event: error\n")
"""The beginning of an event of an error: of chat/completions and completions, and of messages."""
_MS: Final = 1000
MAX_SEARCHED: Final = 64 * 1024  # bytes of a stream in which the first token is looked for


class EngineTimes(msgspec.Struct, frozen=True):
    """What an engine reports of an answer that is not a stream; None for what it does not report.

    `first` are the seconds from the start of its work to the first token, `between` the mean seconds between tokens.
    """

    first: float | None = None
    between: float | None = None


class _Timings(msgspec.Struct, frozen=True):
    """`timings` of llama.cpp: milliseconds of the prompt and of the tokens after it, and the number of tokens."""

    prompt_ms: float = -1.0
    predicted_ms: float = -1.0
    predicted_n: int = 0


class _Timed(msgspec.Struct):
    timings: _Timings = _Timings()


_TIMED: Final = msgspec.json.Decoder(_Timed)


class StreamObserver:
    """Reads the pieces of a stream of server-sent events as they pass. Times are those that `feed` gets, in seconds."""

    __slots__ = ("_after", "_before", "_events", "_head", "_tail", "failed", "first", "last")

    def __init__(self) -> None:
        self.first: float | None = None
        """When the first text came; None while there is none."""
        self.last = 0.0
        """When the last piece came that had the end of an event."""
        self.failed = False
        """Whether the engine told of an error in an event."""
        self._events = 0
        self._head = b""
        self._before = b""
        self._tail = b""

    def feed(self, data: bytes, now: float) -> None:
        """Read the next piece of the stream."""
        if self.first is None and len(self._head) < MAX_SEARCHED:
            self._search(data, now)
        elif ended := data.count(_END):
            self._events += ended
            self.last = now
        if any(error in data for error in _ERRORS):
            self.failed = True
        self._before, self._tail = self._tail, data

    def usage(self) -> TokenUsage:
        """Return the tokens of the whole stream, once it has ended."""
        end = self._before + self._tail
        no_token = end.rstrip().endswith(_DONE)
        counted = TokenUsage(0, 0 if self.first is None else max(1, self._events - no_token))
        for event in reversed(_events(end)):
            told = usage_of(event)
            if told is not None:
                return TokenUsage(told.prompt, told.completion or counted.completion)
        return counted

    def seconds_per_token(self, usage: TokenUsage) -> float | None:
        """Return the mean time between two tokens; None for fewer than two."""
        if self.first is None or usage.completion < 2 or self.last <= self.first:
            return None
        return (self.last - self.first) / (usage.completion - 1)

    def _search(self, data: bytes, now: float) -> None:
        """Look for the first text, in whole events; an event may come in pieces."""
        self._head += data
        whole, end, rest = self._head.rpartition(_END)
        if not end:
            return
        self._head = rest
        events = whole.split(_END)
        for place, event in enumerate(events):
            if _has_text(_json_of(event)):
                self.first = self.last = now
                self._events = len(events) - place
                return


def body_usage(body: bytes) -> TokenUsage | None:
    """Return the tokens of a response that is not a stream; None if it tells none."""
    try:
        return usage_of(_DECODE(body))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def body_times(body: bytes) -> EngineTimes:
    """Return the times that an engine reports in a response that is not a stream. An answer without tokens has none."""
    try:
        told = _TIMED.decode(body).timings
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return EngineTimes()
    if told.predicted_n < 1 or told.prompt_ms < 0.0:
        return EngineTimes()
    is_timed = told.predicted_n > 1 and told.predicted_ms > 0.0
    between = told.predicted_ms / _MS / (told.predicted_n - 1) if is_timed else None
    return EngineTimes(told.prompt_ms / _MS, between)


def _events(stream: bytes) -> list[Any]:
    return [event for part in stream.split(_END) if (event := _json_of(part)) is not None]


def _json_of(event: bytes) -> Any:
    """Return the JSON of an event; None if it has none, or only a part of it is there."""
    lines = (line for line in event.split(b"\n") if line.startswith(_DATA))
    data = next(lines, _DATA)[len(_DATA) :].strip()
    if not data or data == _DONE:
        return None
    try:
        return _DECODE(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _has_text(event: Any) -> bool:
    """Return whether an event of chat/completions, completions, responses or messages has a part of the answer."""
    if not isinstance(event, dict):
        return False
    choices = event.get("choices")
    if isinstance(choices, list):
        return any(isinstance(choice, dict) and _choice_has_text(choice) for choice in choices)
    delta = event.get("delta")
    if isinstance(delta, dict):
        return any(delta.get(name) for name in ("text", "partial_json", "thinking"))
    return bool(delta) and isinstance(delta, str)


def _choice_has_text(choice: dict[str, Any]) -> bool:
    delta = choice.get("delta")
    parts = delta if isinstance(delta, dict) else {}
    return bool(
        choice.get("text")
        or any(parts.get(name) for name in ("content", "reasoning_content", "reasoning", "tool_calls", "refusal"))
    )
