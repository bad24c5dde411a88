"""Foreign text in our messages: on one line, bounded, without secrets and control characters."""

from __future__ import annotations

import pytest

from clusters.base.redact import (
    error_text,
    escape_control,
    escape_terminal,
    one_line,
    printable,
    redact,
    redact_url,
    truncate,
)

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
    assert redact(said) == repeated
    assert SECRET not in redact(said)


def test_an_error_that_says_nothing_is_called_by_its_kind() -> None:
    assert error_text(KeyError()) == "KeyError"
    assert error_text(ValueError("wrong")) == "wrong"


def test_text_is_bounded() -> None:
    assert one_line(" a\n\tb  c ", 3) == "a b"
    assert [truncate("abc", 3), truncate("abcd", 3)] == ["abc", "abc…"]


def test_control_characters_are_replaced_or_escaped() -> None:
    assert printable("a\x1b[31m\nb\u202e ü") == "a?[31m?b? ü"
    assert escape_control("a\x1b[31m\nb\u202e ü") == r"a\x1b[31m\nb\u202e ü"
    assert escape_terminal("a\x1b[31m\x9b\r\u202e\u2028\u2066") == r"a\x1b[31m\x9b\r\u202e\u2028\u2066"
    prose = "a\n\tb\u00a0ü\u202f日本\U0001f469\u200d\U0001f4bb"
    assert escape_terminal(prose) == prose


@pytest.mark.parametrize(
    ("uri", "text"),
    [
        ("https://user:secret@host:8080/m.onnx?sig=secret#secret", "https://host:8080/m.onnx?…"),
        ("https://host?sig=secret/x", "https://host?…"),
        ("https://user:se/cret@host/m.onnx", "https://host/m.onnx"),
        ("https://user:se#cret@host/m.onnx?sig=secret", "https://host/m.onnx?…"),
        ("https://user:se?cret@host/m.onnx", "https://host/m.onnx"),
        ("https:/user:se#cret@host/m.onnx", "host/m.onnx"),
        ("s3://bucket:1a/m.onnx#part", "s3://bucket:1a/m.onnx"),
        ("https:/user:secret@host/m.onnx?sig=secret", "host/m.onnx?…"),
        ("https://[::1]:8080/a@b.onnx", "https://[::1]:8080/a@b.onnx"),
        ("oci://host/team/m@sha256:00", "oci://host/team/m@sha256:00"),
        ("models/m.onnx", "models/m.onnx"),
    ],
)
def test_no_secret_of_a_uri_is_shown(uri: str, text: str) -> None:
    assert redact_url(uri) == text


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("ann:pw@127.0.0.1:1", "127.0.0.1:1"),
        ("http:/ann:p w@127.0.0.1:1", "127.0.0.1:1"),
        ("https://ann:1/p@w?x#y@127.0.0.1:1", "https://127.0.0.1:1"),
        ("https://127.0.0.1:port/a?b", "https://127.0.0.1:port/a?…"),
    ],
)
def test_a_password_of_any_characters_is_removed_from_an_invalid_url(url: str, text: str) -> None:
    assert redact_url(url, valid=False) == text


def test_a_url_in_a_message_is_printable_and_bounded() -> None:
    assert redact_url("https://host/a\nb") == "https://host/a?b"
    assert len(redact_url("https://host/" + "a" * 1000)) == 500
