"""Bodies with too many values are refused, and texts do not count."""

from __future__ import annotations

import pytest

from serving.modelserver.base.errors import InvalidRequest
from serving.modelserver.openai.body_values import MAX_VALUES, check_values

REST = b"0," * (MAX_VALUES - 3)


@pytest.mark.parametrize("value", [b"[]", b"{}", b'{"a":1}', b"0,0"])
def test_too_many_values_are_refused(value: bytes) -> None:
    check_values(b'{"model":"m","prompt":[' + REST + b"0]}")
    with pytest.raises(InvalidRequest, match="more than 300000 values: send texts in place of tokens"):
        check_values(b'{"model":"m","prompt":[' + REST + value + b"]}")


@pytest.mark.parametrize("text", [b"a, b, [c], {d}", rb"\"", rb"\\", rb"\",\\\",", "ä,".encode()])
def test_texts_have_no_values(text: bytes) -> None:
    check_values(b'{"model":"m","prompt":"' + text * 400_000 + b'"}')
    with pytest.raises(InvalidRequest):
        check_values(b'{"model":"m","prompt":["' + text * 400_000 + b'",' + REST + b"[]]}")


@pytest.mark.timeout(20)
@pytest.mark.parametrize("start", [b'{"a":"', b'"' * 800_001, b'"' + rb"\"" * 3_000_000, b'"' + b"\\" * 3_000_001])
def test_each_byte_is_read_once(start: bytes) -> None:
    check_values(start + b"," * 400_000)  # the decoder refuses a text that does not end


def test_many_texts_are_many_values() -> None:
    with pytest.raises(InvalidRequest):
        check_values(b'"' * 2_000_001 + b"," * 400_000)
    check_values(b"[" + b'{"a, b":"c"},' * 75_000 + b"0]")
