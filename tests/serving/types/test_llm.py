"""The fields of `spec.llm`."""

from __future__ import annotations

from typing import Any

import pytest

from serving.types.faults import LLM_FORMATS
from serving.types.llm import Llm, LlmAdapter, llm_fault
from serving.types.model import claims_of
from serving.types.validation import validate_model
from tests.manifests.bad_models import ADAPTER, DIGEST
from tests.serving.models import model, model_object


def test_the_fields_are_read_with_sorted_engine_arguments() -> None:
    llm = model(
        llm={"contextLength": 4096, "embeddings": True, "adapters": [ADAPTER], "toolParser": "hermes",
             "engineArgs": {"seed": "7", "dtype": "bfloat16"}},
    ).spec.llm  # fmt: skip
    adapter = LlmAdapter("pirate", "hf://org/pirate-lora@v1", DIGEST)
    assert llm == Llm(4096, True, (adapter,), "hermes", (("dtype", "bfloat16"), ("seed", "7")))


def test_a_model_without_llm_and_one_with_an_empty_one_are_equal() -> None:
    assert model().spec == model(llm={}).spec == model(llm={"engineArgs": {}}).spec


def test_a_null_engine_argument_is_refused() -> None:
    [error] = validate_model(None, model_object(llm={"engineArgs": {"seed": None}}))
    assert (error.path, error.message) == ("spec.llm.engineArgs.seed", "must be a text, not None")


@pytest.mark.parametrize("name", ["", *LLM_FORMATS])
def test_language_models_and_formats_to_be_detected_may_have_it(name: str) -> None:
    assert llm_fault(name) == ""


@pytest.mark.parametrize(
    ("uri", "adapters", "claims"),
    [
        ("file:///m", (), ()),
        ("pvc://models/m", ("pvc://models/a", "hf://org/lora"), ("models",)),
        ("s3://box/m", ("pvc://loras/a", "pvc://others/a"), ("loras", "others")),
    ],
)
def test_the_claims_are_those_of_the_model_and_its_adapters(
    uri: str, adapters: tuple[str, ...], claims: tuple[str, ...]
) -> None:
    given: list[Any] = [{"name": f"a{index}", "uri": one} for index, one in enumerate(adapters)]
    assert claims_of(model(storageUri=uri, llm={"adapters": given} if given else None).spec) == claims
