"""Properties of label selectors, against a plain implementation of the rules. The contract has the tables."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusters.base.errors import Invalid
from clusters.base.selectors import parse_selector, selector_for

KEYS = st.sampled_from(["a", "b", "example.org/c"])
VALUES = st.sampled_from(["", "x", "y", "z.1"])
LABELS = st.dictionaries(KEYS, VALUES)


@given(LABELS, KEYS, st.sets(VALUES, min_size=1))
def test_operators_mean_what_kubernetes_says(labels: dict[str, str], key: str, values: set[str]) -> None:
    listed, value = ",".join(sorted(values)), min(values)
    expectations = {
        f"{key}={value}": labels.get(key) == value,
        f"{key} == {value}": labels.get(key) == value,
        f"{key}!={value}": labels.get(key) != value,
        f"{key} in ({listed})": labels.get(key) in values,
        f"{key} notin ({listed})": labels.get(key) not in values,
        f"{key}": key in labels,
        f"!{key}": key not in labels,
    }
    for text, expected in expectations.items():
        assert parse_selector(text).matches(labels) is expected, text


@given(LABELS, LABELS)
def test_match_labels_are_a_selector(wanted: dict[str, str], labels: dict[str, str]) -> None:
    assert parse_selector(selector_for(wanted)).matches(labels) is (wanted.items() <= labels.items())


@given(st.text(max_size=30))
def test_any_text_is_a_selector_or_invalid(text: str) -> None:
    try:
        parse_selector(text).matches({"a": "x"})
    except Invalid as error:
        assert error.causes[0].path == "labelSelector"


def test_a_comma_inside_parentheses_does_not_end_a_requirement() -> None:
    selector = parse_selector("a in (x, y),b notin (z),!c")
    assert len(selector.requirements) == 3
    assert selector.matches({"a": "y"})
    assert not selector.matches({"a": "y", "c": ""})


@pytest.mark.parametrize("text", ["a=" + "v" * 64, "a/b/c=d", "/a=b", "UPPER.example/a=b", "a in ()x"])
def test_bad_keys_and_values_are_refused(text: str) -> None:
    with pytest.raises(Invalid):
        parse_selector(text)


@pytest.mark.bad_input("manage-queries")
@pytest.mark.parametrize("text", ["a," * 16_000 + "=", "a in (" + "b," * 16_000 + "b", "(" * 32_000, ",)" * 16_000])
def test_a_selector_as_long_as_a_head_is_not_repeated(text: str) -> None:
    with pytest.raises(Invalid) as refused:
        parse_selector(text)
    assert len(str(refused.value)) < 1000
