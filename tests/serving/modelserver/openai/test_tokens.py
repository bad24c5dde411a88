"""What is read from the responses of a language model as they pass."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.engines.upstream.usage import TokenUsage
from serving.modelserver.openai.tokens import StreamObserver, body_usage


def event(**content: Any) -> bytes:
    return b"data: " + json.dumps(content).encode() + b"\n\n"


def chat(text: str | None) -> bytes:
    return event(choices=[{"delta": {"content": text}}])


ROLE = event(choices=[{"delta": {"role": "assistant", "content": ""}}])
STREAM = [ROLE, chat("a"), chat("b\n\ndata: c"), chat("d"), event(choices=[{"delta": {}, "finish_reason": "stop"}])]
USAGE = event(choices=[], usage={"prompt_tokens": 5, "completion_tokens": 3})
DONE = b"data: [DONE]\n\n"


def observed(pieces: list[bytes]) -> StreamObserver:
    observer = StreamObserver()
    for number, piece in enumerate(pieces):
        observer.feed(piece, float(number))
    return observer


def test_an_opening_event_without_text_is_no_token() -> None:
    assert observed([ROLE]).first is None
    assert observed([*STREAM]).first == 1.0


def test_the_usage_counts_where_there_is_one() -> None:
    observer = observed([*STREAM, USAGE, DONE])
    assert observer.usage() == TokenUsage(5, 3)
    assert observer.seconds_per_token(observer.usage()) == (6 - 1) / 2


def test_without_usage_the_events_count() -> None:
    assert observed(STREAM[:4]).usage() == TokenUsage(0, 3)


def test_timings_of_llama_cpp_count() -> None:
    last = event(choices=[{"delta": {}}], timings={"prompt_n": 2, "cache_n": 8, "predicted_n": 4})
    assert observed([*STREAM, last, DONE]).usage() == TokenUsage(10, 4)


@given(st.lists(st.integers(1, 400), max_size=20))
def test_the_pieces_of_the_stream_do_not_matter(cuts: list[int]) -> None:
    whole = b"".join([*STREAM, USAGE, DONE])
    places = sorted({0, len(whole), *(cut for cut in cuts if cut < len(whole))})
    observer = observed([whole[start:end] for start, end in pairwise(places)])
    assert observer.first is not None
    assert not observer.failed


@pytest.mark.parametrize(
    "first",
    [
        event(choices=[{"text": "a"}]),
        event(choices=[{"delta": {"tool_calls": [{"index": 0}]}}]),
        event(choices=[{"delta": {"reasoning_content": "hm"}}]),
        b"event: response.output_text.delta\n" + event(type="response.output_text.delta", delta="a"),
        b"event: content_block_delta\n" + event(type="content_block_delta", delta={"type": "text_delta", "text": "a"}),
    ],
)
def test_the_first_text_of_each_api(first: bytes) -> None:
    assert observed([ROLE, first]).first == 1.0


def test_an_error_event_is_seen() -> None:
    assert observed([*STREAM[:2], event(error={"message": "the core died"})]).failed


def test_a_text_may_look_like_an_event() -> None:
    assert observed([chat("data: x\n\ndata: y")]).first == 0.0


@pytest.mark.parametrize("noise", [b"", b"data: {\n\n", b"data: 1\n\n", b'data: {"choices": 3}\n\n', b"\xff\n\n" * 50])
def test_noise_is_no_token(noise: bytes) -> None:
    observer = observed([noise])
    assert observer.first is None
    assert observer.usage() == TokenUsage()
    assert observer.seconds_per_token(observer.usage()) is None


def test_usage_of_whole_answers() -> None:
    assert body_usage(b'{"usage": {"input_tokens": 3, "output_tokens": 4}}') == TokenUsage(3, 4)
    assert body_usage(b'{"usage": {"prompt_tokens": 3, "total_tokens": 3}}') == TokenUsage(3, 0)
    assert body_usage(b"[1]") is None
    assert body_usage(b"no JSON") is None
