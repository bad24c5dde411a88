"""What others' errors say is repeated without the secrets in it."""

from __future__ import annotations

import pytest

from clusters.base.redact import harmless, words_of

SECRET = "s3cret"


@pytest.mark.parametrize(
    ("said", "repeated"),
    [
        ("Expected key user in /k/{'name': 'u', 'token': 's3cret'}", "Expected key user in /k/{…}"),
        ("Expected key a in /k/{'user': {'b': {'c': 's3cret}'}}}/user/b", "Expected key a in /k/{…}/user/b"),
        ("407, message='No', url='http://me:s3cret@proxy:1'", "407, message='No', url='http://…@proxy:1'"),
        ("http://me:s3cret/@x@proxy:1/a and http://s3cret@other", "http://…@proxy:1/a and http://…@other"),
        ("found undefined alias 's3cret'\n  in \"k\", line 6", "found undefined alias '…' in \"k\", line 6"),
        ("no  secret\nat all: https://proxy:1/a", "no secret at all: https://proxy:1/a"),
    ],
)
def test_it_is_one_line_without_the_secret(said: str, repeated: str) -> None:
    assert harmless(said) == repeated
    assert SECRET not in harmless(said)


def test_an_error_that_says_nothing_is_called_by_its_kind() -> None:
    assert words_of(KeyError()) == "KeyError"
    assert words_of(ValueError("wrong")) == "wrong"
