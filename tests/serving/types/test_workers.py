"""The fields of `spec.workers`, and their form on a leader's Pod."""

from __future__ import annotations

import pytest

from serving.types.resources import Resources
from serving.types.workers import Gang, Workers, from_json, to_json
from tests.serving.models import model

WHOLE = Workers(3, Resources("8", "64Gi", 2, "amd.com/gpu"), "tolerate", Gang("kueue", "research"))


def test_absent_fields_have_their_defaults() -> None:
    assert model(modelFormat="vllm").spec.workers is None
    found = model(modelFormat="vllm", workers={"count": 2, "resources": {"cpu": "8"}}).spec.workers
    assert found == Workers(2, Resources("8", "1Gi"), "restart", None)


@pytest.mark.parametrize("workers", [Workers(1), WHOLE, Workers(2, gang=Gang("volcano"))])
def test_what_is_on_the_pod_is_read_as_it_was(workers: Workers) -> None:
    assert from_json(to_json(workers)) == workers


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"count":65}', '{"count":2,"size":1}', "[" * 9999])
def test_a_text_that_is_not_ours_is_none(text: str) -> None:
    assert from_json(text) is None


@pytest.mark.parametrize(
    ("resources", "amounts"),
    [
        (Resources("1", "1Gi"), {"cpu": "1", "memory": "1Gi"}),
        (Resources("1", "1Gi", 2), {"cpu": "1", "memory": "1Gi", "nvidia.com/gpu": "2"}),
        (Resources("1", "1Gi", 2, "amd.com/gpu"), {"cpu": "1", "memory": "1Gi", "amd.com/gpu": "2"}),
        (Resources("1", "1Gi", 0, "amd.com/gpu"), {"cpu": "1", "memory": "1Gi"}),
    ],
)
def test_resources_have_their_names_in_kubernetes(resources: Resources, amounts: dict[str, str]) -> None:
    assert resources.amounts() == amounts
