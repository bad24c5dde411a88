"""Batch limits in load calls and in stored assignments."""

from __future__ import annotations

import json
from typing import Any

import pytest

from serving.modelserver.base.assignment import (
    DEFAULT_BATCH_LATENCY,
    BadAssignment,
    BatchBounds,
    ModelBounds,
    from_stored,
    parse_assignment,
    to_stored,
)

ALONE = ModelBounds(4, 300.0, 1.0)
BATCHED = ModelBounds(4, 300.0, 1.0, BatchBounds(8, 0.5))


def bounds(default: ModelBounds, **parameters: Any) -> ModelBounds:
    given = {"storageUri": "file:///models/m", "revision": "m-00001", **parameters}
    return parse_assignment("m", json.dumps({"parameters": given}).encode(), default).bounds


@pytest.mark.parametrize(
    ("default", "parameters", "expected"),
    [
        (ALONE, {}, None),
        (ALONE, {"maxBatchSize": 1}, None),
        (ALONE, {"maxBatchLatency": 0.1}, None),
        (ALONE, {"maxBatchSize": "16"}, BatchBounds(16, DEFAULT_BATCH_LATENCY)),
        (ALONE, {"maxBatchSize": 16, "maxBatchLatency": 0}, BatchBounds(16, 0)),
        (BATCHED, {}, BatchBounds(8, 0.5)),
        (BATCHED, {"maxBatchSize": 0}, BatchBounds(8, 0.5)),
        (BATCHED, {"maxBatchSize": 1}, None),
        (BATCHED, {"maxBatchLatency": "0.1"}, BatchBounds(8, 0.1)),
    ],
)
def test_what_is_left_out_is_the_servers_own(
    default: ModelBounds, parameters: dict[str, Any], expected: BatchBounds | None
) -> None:
    assert bounds(default, **parameters).batching == expected


@pytest.mark.parametrize("wrong", [{"maxBatchSize": -1}, {"maxBatchSize": 2.5}, {"maxBatchLatency": -0.1}])
def test_what_is_no_batch_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(BadAssignment):
        bounds(BATCHED, **wrong)


def test_there_are_slots_for_two_batches() -> None:
    assert bounds(ALONE, maxBatchSize=16).slots == 32
    assert bounds(ALONE, maxBatchSize=16, slots=100).slots == 100


@pytest.mark.parametrize("default", [ALONE, BATCHED])
def test_a_stored_assignment_comes_back_as_it_was(default: ModelBounds) -> None:
    body = b'{"parameters": {"storageUri": "file:///models/m", "revision": "m-00001"}}'
    made = parse_assignment("m", body, default)
    assert from_stored(to_stored(made), ModelBounds(1, 1.0, 1.0)) == made
