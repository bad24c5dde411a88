"""Bodies that are no objects, or several at once, whoever reads them. Data, for every door that takes JSON."""

from __future__ import annotations

from collections.abc import Mapping


def nested(levels: int, opening: bytes = b"[", closing: bytes = b"]") -> bytes:
    """So many levels in one another."""
    return opening * levels + b"1" + closing * levels


NO_OBJECTS: Mapping[str, bytes] = {
    "cut off": b'{"metadata": {"name": "x',
    "two values": b"{} {}",
    "a number": b"1",
    "null": b"null",
    "a text": b'"x"',
    "not UTF-8": b'{"metadata": {"name": "\xff"}}',
    "UTF-16": '{"metadata": {}}'.encode("utf-16"),
    "a byte order mark": b"\xef\xbb\xbf{}",
    "a lone surrogate": b'{"metadata": {"name": "\\ud800"}}',
    "NaN": b'{"spec": NaN}',
    "an infinity": b'{"spec": -Infinity}',
    "a number beyond all": b'{"spec": 1e999}',
    "a number of 5000 digits": b'{"spec": ' + b"9" * 5000 + b"}",
    "a number of 100 bits": b'{"spec": 1267650600228229401496703205376}',
    "a name twice": b'{"metadata": {"name": "x", "name": "y"}}',
    "a name twice in other letters": b'{"metadata": {"name": "x", "\\u006eame": "y"}}',
    "65 levels": b'{"spec": ' + nested(65) + b"}",
    "900 levels": b'{"spec": ' + nested(900, b'{"a":', b"}") + b"}",
    "100 000 levels": nested(100_000),
    "an unclosed bracket": b"[" * 100_000,
    "a pickle": b"\x80\x04\x95\x10\0\0\0\0\0\0\0\x8c\x05posix\x94\x8c\x06system\x94\x93\x94.",
}
"""What is no object of JSON that all parsers read alike."""
NO_JSON_TYPES = (
    "text/plain", "application/x-pickle", "application/vnd.bentoml+pickle", "application/x-www-form-urlencoded",
    "multipart/form-data; boundary=" + "-" * 10_000, "application/xml", "application/json; charset=utf-16",
)  # fmt: skip
"""Other types of bodies than JSON in UTF-8."""
