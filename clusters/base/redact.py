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
_QUOTED_LENGTH: Final = 80  # characters
_OBEYED: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
"""Control characters of terminals, and those that change lines or the direction of text."""
_LONGEST_URL: Final = 500  # characters of a URL in a message


def error_text(error: BaseException) -> str:
    """Return the redacted text of an error, or the name of its type where it has none."""
    return redact(str(error)) or type(error).__name__


def redact(text: str) -> str:
    """Return the text on one line, without the content of mappings and without the user and password of URLs."""
    return one_line(_ENTRY.sub("{…}", _ALIAS.sub(r"\1'…'", _WITHIN_URL.sub("://…@", text))))


def redact_url(url: str, *, valid: bool = True) -> str:
    """Return a URL without user, password, fragment and the content of its query, on one line, of 500 characters.

    Queries may contain tokens and signatures. For a URL that was refused as invalid, `valid=False` removes everything
    before the last `@` after the scheme, since a password may contain any character.

    Example:
        redact_url("https://ann:s3cret@host:8080/m.onnx?sig=s3cret")  # "https://host:8080/m.onnx?…"
    """
    if not valid:
        scheme, separator, _ = url.rpartition("@")[0].partition("://")
        url = f"{scheme if separator else ''}{separator}{url.rpartition('@')[2]}"
    whole, query, _ = url.partition("#")[0].partition("?")
    scheme, separator, rest = whole.partition("://")
    authority, slash, path = rest.partition("/")
    host = authority.rpartition("@")[2]
    _, colon, port = host.rpartition(":")
    # A text without a port of digits may have a password with a slash, `?` or `#`, before which the authority ends.
    bad_port = bool(colon) and not port.isdigit() and not port.endswith("]")
    if "@" in url and (bad_port or not separator):
        return redact_url(url, valid=False)
    rest = f"{host}{slash}{path}" if separator else whole
    scheme = scheme if separator else ""
    return printable(f"{scheme}{separator}{rest}" + ("?…" if query else ""))[:_LONGEST_URL]


def one_line(text: str, longest: int | None = None) -> str:
    """Return the text with each run of white space as one space, cut after `longest` characters."""
    return " ".join(text.split())[:longest]


def truncate(text: str, longest: int) -> str:
    """Return the text, or its first `longest` characters and an ellipsis."""
    return text if len(text) <= longest else f"{text[:longest]}…"


def quoted(text: object) -> str:
    """Quote a sender's text for a message: at most 80 characters, on one line, in ASCII."""
    return repr(truncate(str(text), _QUOTED_LENGTH)).encode("ascii", "backslashreplace").decode()


def printable(text: str) -> str:
    """Return the text with a question mark for each control character."""
    return "".join(character if character.isprintable() else "?" for character in text)


def escape_control(text: str) -> str:
    r"""Return the text with an escape such as `\x1b` for each control character: a terminal does not obey it."""
    return "".join(character if character.isprintable() else repr(character)[1:-1] for character in text)


def escape_terminal(text: str) -> str:
    r"""Return a text of several lines with an escape such as `\x1b` for each character that a terminal obeys.

    Unlike `escape_control`, it keeps what prose and code need: newlines, tabs, no-break spaces, and joiners of emoji.
    """
    return _OBEYED.sub(lambda found: repr(found[0])[1:-1], text)
