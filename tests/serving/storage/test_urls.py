"""Parsing of the URLs of model stores."""

from __future__ import annotations

from serving.storage.transfer.urls import parse_url


def test_a_url_is_taken_apart_as_it_is_sent() -> None:
    parsed = parse_url("http://HOST:8080/a%20b?c=d#e")
    assert (parsed.host, parsed.port, parsed.request_target) == ("host", 8080, "/a%20b?c=d")
    assert parsed.host_header == "host:8080"
    assert parse_url("https://[::1]/").host_header == "[::1]"
