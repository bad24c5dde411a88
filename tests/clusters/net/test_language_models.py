"""The Model that a body selects, the list of language models, and errors in OpenAI's form."""

from __future__ import annotations

import json
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusters.net.language_models import (
    MOST_MEMBERS,
    LanguageModel,
    ModelNotSelected,
    Selected,
    error_body,
    language_model,
    model_list,
    select,
)
from tests.clusters.net.openai_bodies import NAMELESS, NOT_JSON, SELECTED, TWICE, UNKNOWN


@pytest.mark.parametrize(("body", "name"), SELECTED)
def test_the_member_of_the_outer_object_selects_the_model(body: bytes, name: str) -> None:
    assert select(body).name == name


def test_a_colon_separates_the_adapter() -> None:
    assert select(b'{"model": "m:legal"}') == Selected("m", "legal")
    assert select(b'{"model": "m:legal:2"}') == Selected("m", "legal:2")
    assert select('{"model": "m:ü"}'.encode()) == Selected("m", "ü")


@pytest.mark.parametrize(
    ("bodies", "status", "param", "code"),
    [
        (NOT_JSON, 400, None, None),
        (NAMELESS, 400, "model", "missing_required_parameter"),
        (TWICE, 400, "model", None),
        (UNKNOWN, 404, "model", "model_not_found"),
    ],
)
def test_what_selects_no_model_is_refused(
    bodies: list[bytes], status: int, param: str | None, code: str | None
) -> None:
    for body in bodies:
        with pytest.raises(ModelNotSelected) as error:
            select(body)
        assert (error.value.status, error.value.param, error.value.code) == (status, param, code), body
        assert "\n" not in str(error.value)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["model", "a", 'b"']), inner, max_size=3)
    ),
    max_leaves=10,
)


@given(st.lists(st.tuples(st.sampled_from(["model", "Model", "x"]), VALUES), max_size=4), st.booleans())
def test_any_object_is_read_as_pythons_json_reads_it(members: list[tuple[str, Any]], ascii_only: bool) -> None:
    written = (f"{json.dumps(name)}: {json.dumps(value, ensure_ascii=ascii_only)}" for name, value in members)
    body = f"{{{', '.join(written)}}}"
    values = [value for name, value in members if name == "model"]
    try:
        selected = select(body.encode("utf-8", "surrogatepass"))
    except ModelNotSelected as error:
        assert error.status in (400, 404)
        if len(values) == 1 and isinstance(values[0], str):
            assert error.status == 404 or any(0xD800 <= ord(one) <= 0xDFFF for one in body)
        return
    assert [":".join(filter(None, selected))] == values


def test_bytes_that_are_no_text_are_refused() -> None:
    for body in (b'{"model": "\xff"}', b'{"\xff": 1, "model": "m"}', b'{"model": "\\ud800"}'):
        with pytest.raises(ModelNotSelected):
            select(body)


def test_very_deep_json_is_refused() -> None:
    with pytest.raises(ModelNotSelected, match="nested too deeply"):
        select(b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b', "model": "m"}')


def test_more_members_than_any_request_has_are_refused() -> None:
    many = b",".join(b'"%d":[]' % number for number in range(MOST_MEMBERS))
    with pytest.raises(ModelNotSelected, match="more than 1000 members"):
        select(b'{%s,"model":"m"}' % many)
    assert select(b'{"a":{%s},"model":"m"}' % many) == Selected("m")


def test_a_large_body_is_not_decoded() -> None:
    """Decoded, these lists would take half a gigabyte."""
    body = b'{"model":"m","a":[%s[]]}' % (b"[]," * 10_000_000)
    tracemalloc.start()
    try:
        assert select(body) == Selected("m")
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


def model(**changed: Any) -> dict[str, Any]:
    metadata = {"name": "m", "namespace": "default", "creationTimestamp": "2026-01-02T03:04:05Z"}
    return {"metadata": metadata | changed.pop("metadata", {}), "spec": {"modelFormat": "gguf"}, **changed}


def test_a_language_model_is_known_by_its_format_declared_or_found() -> None:
    assert language_model(model()) == LanguageModel("default", "m", 1767323045)
    assert language_model(model(spec={}, status={"modelFormat": "vllm"})) is not None
    for other in (
        model(spec={}),
        model(spec={"modelFormat": "onnx"}),
        model(status={"modelFormat": "sklearn"}),
        model(metadata={"deletionTimestamp": "2026-01-02T03:04:05Z"}),
    ):
        assert language_model(other) is None


@pytest.mark.parametrize("adapters", [None, [], ["a"], [{}], [{"name": 1}]])
def test_adapters_of_an_unknown_form_are_left_out(adapters: Any) -> None:
    found = language_model(model(spec={"modelFormat": "gguf", "llm": {"adapters": adapters}}))
    assert found is not None
    assert found.adapters == ()


def test_the_list_has_each_model_and_its_adapters_sorted_by_name() -> None:
    listed = model_list([LanguageModel("default", "z", 2), LanguageModel("default", "m", 1, ("legal",))])
    own = {"id": "m", "object": "model", "created": 1, "owned_by": "knodel"}
    assert listed == {
        "object": "list",
        "data": [own, own | {"id": "m:legal", "parent": "m"}, own | {"id": "z", "created": 2}],
    }


def test_the_type_of_an_error_follows_its_status() -> None:
    types = {status: error_body(status, "x")["error"]["type"] for status in (400, 404, 429, 500, 503)}
    assert types == {
        400: "invalid_request_error",
        404: "invalid_request_error",
        429: "rate_limit_error",
        500: "server_error",
        503: "server_error",
    }
    assert error_body(404, "x", param="model", code="model_not_found")["error"] == {
        "message": "x",
        "type": "invalid_request_error",
        "param": "model",
        "code": "model_not_found",
    }
