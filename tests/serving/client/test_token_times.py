"""Test the times of the tokens of a streamed answer."""

from __future__ import annotations

from typing import Any

import pytest

from serving.client.inference.token_times import TokenTimes


def piece(text: str, reason: str | None = None) -> dict[str, Any]:
    return {"choices": [{"delta": {"content": text}, "finish_reason": reason}]}


USAGE = {"choices": [], "usage": {"completion_tokens": 5}}
ROLE = {"choices": [{"delta": {"role": "assistant", "content": None}}]}


@pytest.mark.parametrize(
    ("chunks", "expected"),
    [
        ([], (0, None, None)),
        ([(1.0, ROLE)], (0, None, None)),
        ([(1.0, ROLE), (2.0, piece("a"))], (1, 2.0, None)),
        ([(2.0, piece("a")), (3.0, piece("b")), (6.0, piece("c"))], (3, 2.0, 2.0)),
        ([(2.0, piece("ab")), (6.0, piece("cde")), (7.0, USAGE)], (5, 2.0, 1.0)),  # two chunks of five tokens
        ([(2.0, piece("abcde")), (7.0, USAGE)], (5, 2.0, None)),  # all at once
    ],
)
def test_tokens_are_counted_and_timed(
    chunks: list[tuple[float, dict[str, Any]]], expected: tuple[int, float | None, float | None]
) -> None:
    times = TokenTimes(10.0)
    for moment, chunk in chunks:
        times.observe(chunk, 10.0 + moment)

    assert (times.count, times.to_first, times.per_token) == expected


def test_the_reason_of_the_end_is_kept() -> None:
    times = TokenTimes(0.0)
    for chunk in (piece("a"), piece("", "length"), USAGE):
        times.observe(chunk, 1.0)

    assert times.reason == "length"
