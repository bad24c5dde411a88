"""Completions as tensors, and what they tell of their tokens."""

from __future__ import annotations

import json
from typing import Any

import pytest

from serving.engines.base.errors import InferenceFailed
from serving.engines.upstream.text import Completion, completion_request, read_completion
from serving.engines.upstream.usage import TokenUsage


@pytest.mark.parametrize(
    ("more", "usage"),
    [
        ({}, None),
        ({"usage": None}, None),  # vLLM's events before the last one
        ({"usage": {"prompt_tokens": 5, "completion_tokens": 3}}, TokenUsage(5, 3)),
        ({"usage": {"prompt_tokens": "many", "completion_tokens": -3}}, None),
        ({"usage": [1, 2]}, None),
        ({"timings": {"prompt_n": 2, "cache_n": 8, "predicted_n": 4}}, TokenUsage(10, 4)),  # llama.cpp's last event
    ],
)
def test_a_completion_has_its_text_and_the_tokens_that_it_tells(more: dict[str, Any], usage: TokenUsage | None) -> None:
    answer = json.dumps({"choices": [{"text": "a"}, {"text": "b"}], **more}).encode()
    assert read_completion(answer) == Completion("ab", usage)


def test_what_is_no_completion_is_refused() -> None:
    with pytest.raises(InferenceFailed, match="unexpected answer"):
        read_completion(b"no JSON")


@pytest.mark.parametrize(("stream", "options"), [(True, {"include_usage": True}), (False, None)])
def test_a_stream_is_asked_for_its_tokens(stream: bool, options: dict[str, bool] | None) -> None:
    assert completion_request("m", {}, stream=stream).get("stream_options") == options
