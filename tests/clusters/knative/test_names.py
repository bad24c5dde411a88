"""Names of children and durations, as Knative's and Go's own libraries write and read them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusters.embedded.knative import names
from clusters.embedded.knative.durations import parse_duration


def test_a_revision_is_numbered_with_five_digits() -> None:
    assert names.revision("magika", 7) == "magika-00007"
    assert names.revision("magika", 123456) == "magika-123456"


@pytest.mark.parametrize(
    ("parent", "suffix", "child"),
    [  # knative/pkg kmeta/names_test.go
        ("asdf", "-deployment", "asdf-deployment"),
        ("f" * 63, "-deployment", "ffffffffffffffffffff105d7597f637e83cc711605ac3ea4957-deployment"),
        ("f" * 63, "-deploy", "ffffffffffffffffffffffff105d7597f637e83cc711605ac3ea4957-deploy"),
        ("f" * 63, "", "f" * 63),
    ],
)
def test_a_long_name_is_hashed_in_the_middle(parent: str, suffix: str, child: str) -> None:
    assert names.child_name(parent, suffix) == child


NAME = st.from_regex(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?", fullmatch=True)


@given(parent=NAME, other=NAME)
def test_children_fit_a_label_and_differ_as_their_parents_do(parent: str, other: str) -> None:
    child = names.deployment(parent)
    assert len(child) <= 63
    assert (child == names.deployment(other)) == (parent == other)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("600s", 600), ("1m30s", 90), ("1.5h", 5400), ("-2s", -2), ("0", 0), ("250ms", 0.25)],
)
def test_durations_are_read_as_go_reads_them(text: str, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "10", "ten", "1d", "s", "1s ", "--1s"])
def test_what_go_does_not_read_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no duration"):
        parse_duration(text)
