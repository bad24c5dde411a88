"""JSONPath (RFC 9535) into events, restricted to features with linear cost on untrusted data. Pure.

The engine is `python-jsonpath` in strict mode. Not supported are: descendants (`..`), which may visit all data again
for each node; `$` within a filter, which nests loops; the regular expressions `match` and `search`, which backtrack;
and lists of selectors (`[0,0]`), which select nodes repeatedly in each part. Without them, a path visits each node at
most once for each of its parts.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

from jsonpath import JSONPath, JSONPathEnvironment, JSONPathError

ROOT: Final = "$"
"""First character of a path."""
LONGEST: Final = 512
"""Maximum characters of a path: each of its filters visits the data again."""
FUNCTIONS: Final = ("count", "length", "value")
"""The functions of RFC 9535 §2.4 whose time is linear in the size of their argument."""
_NOTHING: Final = object()
_FAULTS: Final = (JSONPathError, ArithmeticError, LookupError, RecursionError, TypeError, ValueError)
"""Errors of the engine. Some of Python's own pass through it, for example for `1e400` and `[?@ && value(@)]`."""


class BadPath(ValueError):
    """An invalid or unsupported path or template; the message is one line."""


class Path:
    """A compiled path."""

    def __init__(self, text: str) -> None:
        """Compile a path. Raises BadPath."""
        self.text = text
        self._path = _compiled(text)

    def first(self, document: Any) -> Any:
        """Return the value of the first selected node, None for no node or a null. Raises BadPath."""
        found = self._first_node(document)
        return None if found is _NOTHING else found.obj

    def selects(self, document: Any) -> bool:
        """Return whether the path selects any node. Raises BadPath."""
        return self._first_node(document) is not _NOTHING

    def _first_node(self, document: Any) -> Any:
        """Return the first selected node or `_NOTHING`. Raises BadPath if the path cannot be evaluated on the data."""
        try:
            return next(iter(self._path.finditer(document)), _NOTHING)
        except _FAULTS as error:
            raise BadPath(f"{self.text!r} cannot be evaluated on this data: {error}") from error


class _Environment(JSONPathEnvironment):
    """RFC 9535 with the functions in `FUNCTIONS`."""

    def setup_function_extensions(self) -> None:
        """Remove all other functions."""
        super().setup_function_extensions()
        self.function_extensions = {name: self.function_extensions[name] for name in FUNCTIONS}


_ENVIRONMENT: Final = _Environment(strict=True)


@lru_cache(maxsize=1024)
def _compiled(text: str) -> JSONPath:
    if len(text) > LONGEST:
        raise BadPath(f"the path has {len(text)} characters, but at most {LONGEST} are allowed")
    try:
        kinds = [token.kind for token in _ENVIRONMENT.lexer.tokenize(text)]
        path = _ENVIRONMENT.compile(text)
    except _FAULTS as error:
        why = error.args[0] if isinstance(error, JSONPathError) else error
        raise BadPath(f"{text!r} is not a JSONPath (RFC 9535, without match and search): {why}") from error
    if "TOKEN_DDOT" in kinds:
        raise BadPath(f"{text!r} selects descendants: write the full path instead of `..`")
    if "TOKEN_COMMA" in kinds:
        raise BadPath(f"{text!r} has several selectors in brackets: use one, or several paths")
    if kinds.count("TOKEN_ROOT") > 1:
        raise BadPath(f"{text!r} has a `$` within a filter: use `@` there")
    if not isinstance(path, JSONPath):
        raise BadPath(f"{text!r} is a compound of several paths: use one")
    return path
