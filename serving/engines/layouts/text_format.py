"""Read the text format of Protocol Buffers without a schema. Pure.

A message becomes a dictionary from each field's name to the list of its values, in their order: `dims: [2, 3]` is
`{"dims": ["2", "3"]}`. Numbers, enumerations and flags are `Bare` texts, strings are `str`, messages are dictionaries.
The caller knows the schema, so it can name each field that it does not read.

Specification: https://protobuf.dev/reference/protobuf/textformat-spec/; without extensions and `Any`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, TypeAlias

from clusters.base.errors import KnodelError

DEEPEST: Final = 32  # nested messages
_TOKEN: Final = re.compile(
    r"""
    (?P<skip>[ \t\r\n\f\v]+|\#[^\n]*)
    | (?P<string>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
    | (?P<bare>-?[A-Za-z0-9_.]+(?:(?<=[0-9.][eE])[+-][0-9]+)?)
    | (?P<sign>[][{}<>:,;])
    """,
    re.VERBOSE,
)
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ESCAPE: Final = re.compile(
    rb"""\\(?:([abfnrtv?'"\\])|([0-7]{1,3})|[xX]([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.?))""",
    re.DOTALL,
)
_SIMPLE: Final = dict(zip(b"abfnrtv?'\"\\", b"\a\b\f\n\r\t\v?'\"\\", strict=True))
_CLOSING: Final = {"{": "}", "<": ">"}


class Bare(str):
    """A number, a flag or a name of an enumeration."""

    __slots__ = ()


Value: TypeAlias = "str | Message"
Message: TypeAlias = dict[str, list[Value]]


class BadText(KnodelError):
    """A text is not in the text format. The message has the line."""


def parse(text: str) -> Message:
    """Return the message of a text. Raises BadText.

    Example:
        parse('max_batch_size: 8 input { name: "x" }') == {"max_batch_size": ["8"], "input": [{"name": ["x"]}]}
    """
    return _Reader(text).fields("", 0)


class _Reader:
    """The tokens of a text, with one of look-ahead: `kind` and `text`, both "" at the end."""

    def __init__(self, text: str) -> None:
        self._tokens = _tokens(text)
        self.line, self.kind, self.text = next(self._tokens)

    def fields(self, end: str, depth: int) -> Message:
        """Return the fields up to the sign `end`, which is consumed; "" is the end of the text."""
        if depth > DEEPEST:
            raise BadText(f"line {self.line}: more than {DEEPEST} nested messages")
        message: Message = {}
        while self.text != end:
            name = self._take("bare", "a field name")
            if not _NAME.fullmatch(name):
                raise BadText(f"line {self.line}: {name[:40]!r} is not a field name")
            message.setdefault(name, []).extend(self._values(depth))
            if self.text in (",", ";"):
                self._next()
        if end:
            self._next()
        return message

    def _values(self, depth: int) -> list[Value]:
        """Return the values of a field whose name was just read."""
        colon = self.text == ":"
        if colon:
            self._next()
        if self.text == "[":
            return self._listed(depth, colon)
        return [self._value(depth, colon)]

    def _listed(self, depth: int, scalars: bool) -> list[Value]:
        values: list[Value] = []
        self._next()
        while self.text != "]":
            if values:
                self._expect(",")
            values.append(self._value(depth, scalars))
        self._next()
        return values

    def _value(self, depth: int, scalar: bool) -> Value:
        """Return one value, which may be a number or string only after a colon (`scalar`)."""
        if self.text in _CLOSING:
            end = _CLOSING[self.text]
            self._next()
            return self.fields(end, depth + 1)
        if not scalar:
            raise BadText(f"line {self.line}: expected ':' or '{{', not {self._shown()}")
        if self.kind == "string":
            parts = []
            while self.kind == "string":  # adjacent strings are one
                parts.append(_unescaped(self.text[1:-1], self.line))
                self._next()
            try:
                return b"".join(parts).decode()
            except UnicodeDecodeError:
                raise BadText(f"line {self.line}: a string is not UTF-8") from None
        return Bare(self._take("bare", "a value"))

    def _take(self, kind: str, expected: str) -> str:
        if self.kind != kind:
            raise BadText(f"line {self.line}: expected {expected}, not {self._shown()}")
        text = self.text
        self._next()
        return text

    def _expect(self, sign: str) -> None:
        if self.text != sign:
            raise BadText(f"line {self.line}: expected {sign!r}, not {self._shown()}")
        self._next()

    def _next(self) -> None:
        self.line, self.kind, self.text = next(self._tokens)

    def _shown(self) -> str:
        return repr(self.text[:40]) if self.kind else "the end of the file"


def _tokens(text: str) -> Iterator[tuple[int, str, str]]:
    """Yield line, kind and text of each token, then ("", "") for ever."""
    line, at = 1, 0
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:
            raise BadText(f"line {line}: unexpected {text[at : at + 20]!r}")
        if found.lastgroup != "skip":
            yield line, found.lastgroup or "", found.group()
        line += found.group().count("\n")
        at = found.end()
    while True:
        yield line, "", ""


def _unescaped(text: str, line: int) -> bytes:
    def replaced(found: re.Match[bytes]) -> bytes:
        simple, octal, hexadecimal, short, long, _ = found.groups()
        if simple is not None:
            return bytes([_SIMPLE[simple[0]]])
        if octal is not None and int(octal, 8) <= 0xFF:
            return bytes([int(octal, 8)])
        if hexadecimal is not None:
            return bytes([int(hexadecimal, 16)])
        try:
            return chr(int(short or long or b"-", 16)).encode()
        except (ValueError, OverflowError):
            raise BadText(f"line {line}: invalid escape {found.group().decode(errors='replace')!r}") from None

    return _ESCAPE.sub(replaced, text.encode())
