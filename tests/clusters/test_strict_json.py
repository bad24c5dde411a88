"""The strict JSON decoder: its fast path gives the same values as the strict one, with the same types of numbers."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusters.net import strict_json
from clusters.net.strict_json import BadJson, TooManyValues

WORDS = st.text(max_size=4) | st.sampled_from(["a", ":", '":', "\\", "\x7f", "ä"])
SCALARS = st.none() | st.booleans() | st.integers() | st.integers(-(2**64), 2**65) | st.floats(allow_nan=False) | WORDS
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3), max_leaves=8
)


def text_of(pairs: list[tuple[str, Any]], colon: str) -> bytes:
    """An object whose names may come twice."""
    members = (f"{json.dumps(name, ensure_ascii=False)}{colon}{json.dumps(value)}" for name, value in pairs)
    return ("{" + ",".join(members) + "}").encode("utf-8", "surrogatepass")


def outcome(body: bytes) -> str:
    try:
        return repr(strict_json.decode(body))
    except BadJson as error:
        return str(error)


@given(st.lists(st.tuples(WORDS, VALUES), max_size=4), st.sampled_from([":", " : ", "\n:"]))
def test_a_quick_look_and_a_strict_one_agree(pairs: list[tuple[str, Any]], colon: str) -> None:
    body = text_of(pairs, colon)

    quick = outcome(body)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(strict_json, "_of_plain", lambda body: None)
        assert quick == outcome(body)


@pytest.mark.bad_input("event-ambiguous")
@pytest.mark.parametrize(
    "body",
    [
        b'{"a":1,"a":1}',
        b'{"a" :1, "a":":"}',
        b'{"a":{"b":1,"b":":b"}}',
        b'[{"a":"x","a":"y"}]',
        b'{"a":"\\"","a":":"}',
    ],
)
def test_a_name_that_comes_twice_is_seen_whatever_surrounds_it(body: bytes) -> None:
    with pytest.raises(BadJson, match="twice"):
        strict_json.decode(body)


def test_a_name_that_comes_twice_among_a_hundred_thousand_is_found_in_one_walk() -> None:
    names = ",".join(f'"{number:05x}":0' for number in range(100_000))
    began = time.process_time()

    with pytest.raises(BadJson, match="'1869f' twice"):
        strict_json.decode(f'{{{names},"1869f":0}}'.encode())

    assert time.process_time() - began < 5.0


@pytest.mark.bad_input("event-size")
@pytest.mark.parametrize("item", ["0", "{}", '{"a":[1,2]}'])
def test_more_values_than_memory_should_be_given_to_are_refused(item: str) -> None:
    per_item = 4 if len(item) > 2 else 1
    most = (strict_json.MOST_VALUES - 1) // per_item
    strict_json.decode(f"[{','.join([item] * most)}]".encode())

    with pytest.raises(TooManyValues, match="send fewer"):
        strict_json.decode(f"[{','.join([item] * (most + 1))}]".encode())


def test_a_text_of_commas_is_one_value() -> None:
    assert strict_json.decode(b'"' + b"," * 1_000_000 + b'"') == "," * 1_000_000


@pytest.mark.bad_input("event-unreadable")
@pytest.mark.parametrize("opening", [b"[", b'{"a":'])
def test_depth_is_counted_in_plain_json_too(opening: bytes) -> None:
    closing = b"]" if opening == b"[" else b"}"
    deepest = strict_json.DEEPEST
    strict_json.decode(opening * deepest + b"1" + closing * deepest)
    for levels in (deepest + 1, 100_000):
        with pytest.raises(BadJson, match="levels deep"):
            strict_json.decode(opening * levels + b"1" + closing * levels)


def test_a_name_that_comes_twice_among_very_many_is_found_at_once() -> None:
    members = [b'"%d":0' % number for number in range(100_000)]
    with pytest.raises(BadJson, match="'99999' twice"):  # a walk over all for each would take minutes
        strict_json.decode(b"{" + b",".join([*members, members[-1]]) + b"}")
