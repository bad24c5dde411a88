"""The search for planted secrets finds them in each form, and where they belong it does not complain."""

from __future__ import annotations

import base64
import json

import pytest

from tests.security.canaries import Canaries, make_canary

SECRET = make_canary()


@pytest.mark.parametrize(
    "content",
    [
        SECRET.encode(),
        json.dumps({"error": f'"{SECRET}"'}).encode(),
        f"GET /v2?key={SECRET}&x".encode(),
        SECRET.encode().hex().encode(),
        *(base64.b64encode(b"x" * before + SECRET.encode() + b"and more") for before in range(4)),
        base64.urlsafe_b64encode(b"\xff\xfe" + SECRET.encode()),
    ],
    ids=["bare", "JSON", "a query", "hexadecimal", *(f"base64 at {before}" for before in range(4)), "base64url"],
)
def test_a_secret_is_found_in_each_form(content: bytes) -> None:
    canaries = Canaries()
    canaries.plant("key", SECRET)
    assert canaries.strays_in("a log", b"before " + content + b" after") == ["key in a log"]


def test_a_secret_is_no_stray_where_it_belongs_and_another_is_not_found() -> None:
    canaries = Canaries()
    canaries.plant("token", SECRET, home=r"^file token$")
    canaries.plant("other")
    assert canaries.strays_in("file token", SECRET.encode()) == []
    assert canaries.strays_in("file token.old", SECRET.encode()) == ["token in file token.old"]
