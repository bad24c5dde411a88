"""Foreign text for our messages and logs: on one line, bounded, without credentials and control characters. Pure.

Errors of libraries may contain secrets. The loader of kubeconfigs names an entry by its whole content, with tokens and
passwords; a URL may have a password; YAML reads a password that begins with `*` as an alias and names it.
"""

from __future__ import annotations

import re
from typing import Final

_WITHIN_URL: Final = re.compile(r"://[^\s'\"]*@")
_ENTRY: Final = re.compile(r"\{.*\}", re.S)
_ALIAS: Final = re.compile(r"(undefined alias )'[^']*'")


def error_text(error: BaseException) -> str:
    """Return the redacted text of an error, or the name of its type where it has none."""
    return redact(str(error)) or type(error).__name__


def redact(text: str) -> str:
    """Return the text on one line, without the content of mappings and without the user and password of URLs."""
    return one_line(_ENTRY.sub("{…}", _ALIAS.sub(r"\1'…'", _WITHIN_URL.sub("://…@", text))))


def one_line(text: str, longest: int | None = None) -> str:
    """Return the text with each run of white space as one space, cut after `longest` characters."""
    return " ".join(text.split())[:longest]


def truncate(text: str, longest: int) -> str:
    """Return the text, or its first `longest` characters and an ellipsis."""
    return text if len(text) <= longest else f"{text[:longest]}…"


def printable(text: str) -> str:
    """Return the text with a question mark for each control character."""
    return "".join(character if character.isprintable() else "?" for character in text)


def escape_control(text: str) -> str:
    r"""Return the text with an escape such as `\x1b` for each control character: a terminal does not obey it."""
    return "".join(character if character.isprintable() else repr(character)[1:-1] for character in text)
