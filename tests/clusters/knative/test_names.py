"""Names of children are equal to those of Knative's own library."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusters.embedded.knative import names


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
