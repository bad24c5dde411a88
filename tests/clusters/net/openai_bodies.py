"""Bodies of OpenAI's API that the gateway and the router read in the same way."""

from __future__ import annotations

from typing import Final

SELECTED: Final[list[tuple[bytes, str]]] = [
    (b'{"model":"m"}', "m"),
    (b' {\r\n\t"model" :\n"m" } ', "m"),
    (b'{"messages": [{"role": "user", "content": "hi"}], "model": "m", "stream": true}', "m"),
    (b'{"prompt": "say \\"model\\": \\"other\\"", "model": "m"}', "m"),
    (b'{"prompt": "ends with a backslash \\\\", "model": "m"}', "m"),
    (b'{"a": {"model": "inner"}, "model": "m", "b": [{"model": "inner"}]}', "m"),
    (b'{"a": "model", "b": ["model", "x"], "model": "m"}', "m"),
    (b'{"model": "m", "a": "model"}', "m"),
    (b'{"\\u006dod\\u0065l": "m"}', "m"),
    (b'{"model": "\\u006d"}', "m"),
    (b'{"Model": "other", "model": "m", "MODEL": "other", "model ": "other", "mode": "other"}', "m"),
    (b'{"\\\\u006dodel": "other", "model": "m"}', "m"),
    (b'{"model": "m", "": "x", "n": -1.5e3, "t": true, "z": null}', "m"),
    ('{"prompt": "Grüße, 世界 {[", "model": "m"}'.encode(), "m"),
]
NOT_JSON: Final = [
    b"model=m",
    b'"m"',
    b'["model", "m"]',
    b"null",
    b"{",
    b'{"model": "m"',
    b'{"model": "m"}}',
    b'{"model": "m"} {"model": "m"}',
    b'{"model": "m"} x',
    b'{"model": "m',
    b'\xef\xbb\xbf{"model": "m"}',
    '{"model": "m"}'.encode("utf-16"),
]
NAMELESS: Final = [
    b"{}",
    b'{"a": 1}',
    b'{"model": null}',
    b'{"model": 1}',
    b'{"model": ["m"]}',
    b'{"model": {"model": "m"}}',
    b'{"a": {"model": "m"}}',
]
TWICE: Final = [
    b'{"model": "m", "model": "m"}',
    b'{"model": "m", "a": 1, "model": "other"}',
    b'{"model": 1, "model": "m"}',
    b'{"model": "m", "m\\u006fdel": "other"}',
]
UNKNOWN: Final = [
    b'{"model": ""}',
    b'{"model": "M"}',
    b'{"model": "m@tag"}',
    b'{"model": "m:"}',
    b'{"model": ":a"}',
    b'{"model": "../m"}',
    b'{"model": "m.other"}',
    b'{"model": "m\\n"}',
    b'{"model": "m\\u0000"}',
    b'{"model": " m"}',
    b'{"model": "%s"}' % (b"m" * 64),
    b'{"model": "%s"}' % (b"m" * 10_000),
]
