"""Duplicate names in JSON objects are refused in all protocols, by the same rule as a slow decoder."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.modelserver.base.errors import InvalidRequest
from serving.modelserver.base.json_names import check_names
from tests.serving.modelserver.conftest import NAME, Running

V2 = f"/v2/models/{NAME}"
PREDICT = f"/v1/models/{NAME}:predict"
UNKNOWN = -1
"""A wrong number of members, which makes `check_names` scan the message."""


class Twice(Exception):
    """Raised by the slow decoder for a duplicate name."""


def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        raise Twice
    return made


def is_found(text: str) -> bool:
    try:
        check_names(text.encode(), UNKNOWN)
    except InvalidRequest:
        return True
    return False


NAMES = st.sampled_from(['a', 'b', 'a"b', "a\\", "ü", "{", ":", ""])  # fmt: skip
TEXTS = st.text(st.sampled_from('ab":{}\\,ü '), max_size=6)
OBJECTS = st.recursive(
    TEXTS | st.integers() | st.none(),
    lambda inner: st.lists(inner, max_size=3) | st.lists(st.tuples(NAMES, inner), max_size=4).map(tuple),
    max_leaves=12,
)


def written(value: Any, ascii: bool, spaces: str) -> str:
    """Return JSON, in which tuples of pairs become objects, even with duplicate names."""
    if isinstance(value, tuple):
        pairs = (f"{json.dumps(name, ensure_ascii=ascii)}{spaces}:{written(of, ascii, spaces)}" for name, of in value)
        return "{" + f",{spaces}".join(pairs) + "}"
    if isinstance(value, list):
        return "[" + f",{spaces}".join(written(item, ascii, spaces) for item in value) + "]"
    return json.dumps(value, ensure_ascii=ascii)


@given(OBJECTS, st.booleans(), st.sampled_from(["", " ", "\n\t"]))
@settings(max_examples=150, deadline=None)
def test_it_finds_what_a_slow_decoder_finds(value: Any, ascii: bool, spaces: str) -> None:
    text = written(value, ascii, spaces)
    try:
        json.loads(text, object_pairs_hook=once)
    except Twice:
        assert is_found(text)
    else:
        assert not is_found(text)


def test_a_name_is_the_same_however_it_is_written() -> None:
    assert is_found('{"a": 1, "\\u0061": 2}')


@pytest.mark.bad_input("infer-malformed")
@pytest.mark.parametrize(
    ("path", "body"),
    [
        (f"{V2}/infer", '{"inputs": [], "inputs": [{"name":"x","datatype":"FP32","shape":[1],"data":[1]}]}'),
        (f"{V2}/infer", '{"inputs": [{"name":"x","datatype":"FP32","shape":[1],"data":[1], "data": [2]}]}'),
        (f"{V2}/infer", '{"inputs": [{"name":"x","datatype":"FP32","shape":[1],"data":[1],"shape":[1]}]}'),
        (PREDICT, '{"instances": [1], "instances": [2]}'),
        (PREDICT, '{"instances": [{"x": 1, "x": 2}]}'),
        (PREDICT, '{"inputs": {"x": [1], "x": [2]}}'),
        (f"{V2}/generate", '{"x": 1, "x": 2}'),
        (f"{V2}/generate", '{"x": 1, "parameters": {"a": 1, "a": 2}}'),
        (f"{V2}/generate", '{"x": 1, "parameters": {}, "parameters": {}}'),
        (f"{V2}/generate_stream", '{"x": 1, "x": 2}'),
        ("/invocations", '{"inputs": [1], "inputs": [2]}'),
    ],
)
async def test_a_name_that_comes_twice_is_400(double: Running, path: str, body: str) -> None:
    answer = await double.post(body.encode(), path)
    assert answer.status == 400 and "twice" in answer.error, answer.body


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (f"{V2}/infer", {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1], "data": [1]}], "mine": {"a": ":"}}),
        (f"{V2}/infer", {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1], "data": [1]}], "id": "a:b:c"}),
        (PREDICT, {"instances": [1], "signature_name": "serving_default", "mine": {"instances": 1}}),
        (PREDICT, {"instances": [{"x": 1}, {"x": 2}]}),
        (f"{V2}/generate", {"x": 1, "parameters": {"a": {"x": 1}, "b": "{:"}}),
    ],
)
async def test_the_same_name_in_different_objects_is_none_twice(double: Running, path: str, body: object) -> None:
    answer = await double.post(body, path)
    assert answer.status == 200, answer.body


@pytest.mark.parametrize("padding", [0, 100_000])
def test_colons_are_counted_alike_in_small_and_large_messages(padding: int) -> None:
    space = b" " * padding
    check_names(b'{"a":1,' + space + b'"b":{"c":2}}', 3)
    check_names(b'{"a":"x:y",' + space + b'"b":2}', 2)  # a colon in a string needs a scan, and is valid
    check_names(b'{"a":1,' + space + b'"b":2}', 3)
    for members in (1, 2, 3):
        with pytest.raises(InvalidRequest, match="twice"):
            check_names(b'{"a":1,"b":2,' + space + b'"a":3}', members if members < 3 else 4)
