"""URLs of model stores: split as they are sent, shown without secrets."""

from __future__ import annotations

import pytest

from serving.storage.transfer.addresses import parse, shown


def test_a_url_is_taken_apart_as_it_is_sent() -> None:
    parsed = parse("http://HOST:8080/a%20b?c=d#e")
    assert (parsed.host, parsed.port, parsed.request_target) == ("host", 8080, "/a%20b?c=d")
    assert parsed.host_header == "host:8080"
    assert parse("https://[::1]/").host_header == "[::1]"


@pytest.mark.parametrize(
    ("uri", "text"),
    [
        ("https://user:secret@host:8080/m.onnx?sig=secret#secret", "https://host:8080/m.onnx?…"),
        ("https://host?sig=secret/x", "https://host?…"),
        ("https://user:se/cret@host/m.onnx", "https://host/m.onnx"),
        ("https:/user:secret@host/m.onnx?sig=secret", "host/m.onnx?…"),
        ("https://[::1]:8080/a@b.onnx", "https://[::1]:8080/a@b.onnx"),
        ("oci://host/team/m@sha256:00", "oci://host/team/m@sha256:00"),
        ("models/m.onnx", "models/m.onnx"),
    ],
)
def test_no_secret_of_a_uri_is_shown(uri: str, text: str) -> None:
    assert shown(uri) == text
