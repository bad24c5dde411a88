"""Paths into an event: JSONPath of RFC 9535, without what can take long over data from strangers. Pure.

`python-jsonpath` is the engine, in its strict mode. Left out are descendants (`..`), which may visit the data once more
for each of its nodes; `$` within a filter, which nests loops; and the regular expressions `match` and `search`, which
backtrack; and lists of selectors (`[0,0]`), which select a node more than once, and all of that again in the next part.
What is left looks at no node more often than the path has parts.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

from jsonpath import JSONPath, JSONPathEnvironment, JSONPathError

ROOT: Final = "$"
"""How a path begins."""
LONGEST: Final = 512
"""Characters of a path: each of its filters is another look at the data."""
FUNCTIONS: Final = ("count", "length", "value")
"""Of RFC 9535 §2.4, those whose time is bounded by their argument."""
_NOTHING: Final = object()
_FAULTS: Final = (JSONPathError, ArithmeticError, LookupError, RecursionError, TypeError, ValueError)
"""Of the engine: it lets some of Python's own through, as for `1e400` and `[?@ && value(@)]`."""


class BadPath(ValueError):
    """A text that is no path, or one that is not taken here; the message is one line."""


class Path:
    """A compiled path."""

    def __init__(self, text: str) -> None:
        """Raises BadPath."""
        self.text = text
        self._path = _compiled(text)

    def first(self, document: Any) -> Any:
        """The value of the first node that it selects; None when it selects nothing, or a null. Raises BadPath."""
        found = self._first_node(document)
        return None if found is _NOTHING else found.obj

    def selects(self, document: Any) -> bool:
        """Whether it selects any node. Raises BadPath."""
        return self._first_node(document) is not _NOTHING

    def _first_node(self, document: Any) -> Any:
        """Raises BadPath for data over which the path has no meaning."""
        try:
            return next(iter(self._path.finditer(document)), _NOTHING)
        except _FAULTS as error:
            raise BadPath(f"{self.text!r} cannot be followed in these data: {error}") from error


class _Environment(JSONPathEnvironment):
    """RFC 9535 with the functions that are allowed."""

    def setup_function_extensions(self) -> None:
        """Keep those of `FUNCTIONS`."""
        super().setup_function_extensions()
        self.function_extensions = {name: self.function_extensions[name] for name in FUNCTIONS}


_ENVIRONMENT: Final = _Environment(strict=True)


@lru_cache(maxsize=1024)
def _compiled(text: str) -> JSONPath:
    if len(text) > LONGEST:
        raise BadPath(f"the path has {len(text)} characters: at most {LONGEST} are allowed")
    try:
        kinds = [token.kind for token in _ENVIRONMENT.lexer.tokenize(text)]
        path = _ENVIRONMENT.compile(text)
    except _FAULTS as error:
        why = error.args[0] if isinstance(error, JSONPathError) else error
        raise BadPath(f"{text!r} is no JSONPath (RFC 9535, without match and search): {why}") from error
    if "TOKEN_DDOT" in kinds:
        raise BadPath(f"{text!r} looks for descendants: name the whole way instead of `..`")
    if "TOKEN_COMMA" in kinds:
        raise BadPath(f"{text!r} has several selectors in brackets: name one, or give several paths")
    if kinds.count("TOKEN_ROOT") > 1:
        raise BadPath(f"{text!r} has a `$` within a filter: only `@` is allowed there")
    if not isinstance(path, JSONPath):
        raise BadPath(f"{text!r} is more than one path")
    return path
