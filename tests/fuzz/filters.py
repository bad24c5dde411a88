"""Texts that choose: selectors of labels and fields, patterns of sources, prefixes of addresses. None takes long.

What is read is matched; what is not is the caller's fault, in one line that does not repeat it whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter

from hypothesis import strategies as st

from clusters.base.errors import KnodelError
from clusters.base.selectors import parse_selector
from eventing.auth.permits import is_below
from serving.control_api.fields import parse_field_selector
from tests.fuzz.target import Target

LONGEST = 1.0  # s of one text; a head has 32 KiB
LONGEST_MESSAGE = 1500  # characters
PARTS = st.sampled_from(
    [
        *("a", "b/c", "=", "==", "!=", "!", ",", " in ", " notin ", "(", ")", " ", "x", "\x00", "é", "\\"),
        *("metadata.name", "status.phase", "s3://", "models", "/", "..", "%2e", "%2f", "@", "#", "?", ":"),
    ]
)
TEXTS = st.one_of(
    st.lists(PARTS | st.text(max_size=3), max_size=20).map("".join),
    st.tuples(st.lists(PARTS, min_size=1, max_size=4).map("".join), st.integers(1, 6000)).map(
        lambda two: two[0] * two[1]
    ),
)


@contextmanager
def opened() -> Iterator[Callable[[str], None]]:
    """The check of one text."""
    yield check


def check(text: str) -> None:
    """Raises AssertionError when a promise is broken."""
    begun = perf_counter()
    _check_one(lambda: parse_selector(text).matches({"a": "x", "b/c": ""}))
    _check_one(lambda: parse_field_selector(text)({"metadata": {"name": "x"}}))
    if is_below(text, ["s3://models/"]):
        assert text.lower().startswith("s3://models/") and "\x00" not in text
    assert perf_counter() - begun < LONGEST


def _check_one(match: Callable[[], bool]) -> None:
    try:
        assert match() in (True, False)
    except KnodelError as error:
        assert "\n" not in str(error) and len(str(error)) < LONGEST_MESSAGE


TARGETS = (Target("selectors and prefixes", TEXTS, opened, everyday=200),)
