"""The guard of the control API, row by row."""

from __future__ import annotations

import pytest

from serving.control_api.guard import Guard

GUARD = Guard("secret", frozenset({"127.0.0.1", "localhost", "[::1]"}))
GOOD = {"host": "127.0.0.1:8081", "authorization": "Bearer secret"}


def test_the_right_token_on_a_known_host_passes() -> None:
    assert GUARD.refuse("/apis", GOOD) is None
    assert GUARD.refuse("/apis", GOOD | {"host": "LOCALHOST:1"}) is None
    assert GUARD.refuse("/apis", GOOD | {"host": "[::1]:8081"}) is None


@pytest.mark.bad_input("manage-stranger")
@pytest.mark.parametrize(
    "token", ["", "Bearer", "Bearer wrong", "Basic secret", "secret", "Bearer secret2", "Bearer ü"]
)
def test_a_wrong_token_is_401(token: str) -> None:
    refusal = GUARD.refuse("/apis", GOOD | {"authorization": token})

    assert refusal is not None
    assert refusal.code == 401


@pytest.mark.bad_input("manage-browser")
@pytest.mark.parametrize("host", ["", "evil.example", "localhost.evil", "127.0.0.1.evil:8081", "[::2]"])
def test_an_unknown_host_is_403_even_with_the_token(host: str) -> None:
    refusal = GUARD.refuse("/apis", GOOD | {"host": host})

    assert refusal is not None
    assert refusal.code == 403


@pytest.mark.bad_input("manage-browser")
@pytest.mark.parametrize("origin", ["null", "https://evil.example", "http://localhost.evil:8081", ""])
def test_a_foreign_origin_is_403_even_with_the_token(origin: str) -> None:
    refusal = GUARD.refuse("/apis", GOOD | {"origin": origin})

    assert refusal is not None
    assert refusal.code == 403


def test_probes_need_no_token_but_a_known_host() -> None:
    assert GUARD.refuse("/readyz", {"host": "localhost"}) is None
    assert GUARD.refuse("/readyz", {"host": "evil"}) is not None


@pytest.mark.parametrize("token", ["", " ", "\n"])
def test_an_empty_token_is_refused_at_the_start(token: str) -> None:
    with pytest.raises(ValueError, match="empty"):
        Guard(token, frozenset({"127.0.0.1"}))


@pytest.mark.parametrize("authorization", ["", "Bearer", "Bearer ", "Bearer secret"])
def test_no_token_lets_one_pass_where_tokens_are_not_taken(authorization: str) -> None:
    guard = Guard(None, frozenset({"127.0.0.1"}))

    refusal = guard.refuse("/apis", GOOD | {"authorization": authorization})

    assert refusal is not None and refusal.code == 403 and "over TLS" in refusal.message
    assert guard.refuse("/readyz", GOOD) is None
