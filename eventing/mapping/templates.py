"""Templates: how a mapping says where a value comes from. Pure.

    iris                                     the text itself
    $.data.metadata.annotations['a/b']       what a path selects, whatever its type
    s3://models/{$.data.name | label}/       a text with what paths select in it
    [$.data.version, $.data.name]            the first of them that has a value

Behind a path, ` | NAME` passes the text through one of `transforms.TRANSFORMS`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from eventing.mapping.paths import ROOT, BadPath, Path
from eventing.mapping.transforms import TRANSFORMS

MOST: Final = 16
"""Alternatives of a value: each is another look at the event."""
LONGEST: Final = 2048
"""Characters of a template: a storageUri has as many."""
_PART: Final = re.compile(r"""\{(\$(?:[^{}'"]|'[^']*'|"[^"]*")*)\}""")
_PIPE: Final = re.compile(r"(.*?)\s+\|\s+(\w+)", re.DOTALL)


class Template:
    """One compiled template."""

    def __init__(self, text: str) -> None:
        """Raises BadPath."""
        if not text or len(text) > LONGEST:
            raise BadPath(f"a template has between 1 and {LONGEST} characters")
        self._pieces = [_Selection(text)] if text.startswith(ROOT) else _pieces(text)

    @property
    def is_constant(self) -> bool:
        """Whether it looks at nothing."""
        return not any(isinstance(piece, _Selection) for piece in self._pieces)

    def value(self, document: Any) -> Any:
        """What it is for this document; None when a path of it selects nothing."""
        if len(self._pieces) == 1 and isinstance(self._pieces[0], _Selection):
            return self._pieces[0].value(document)
        texts = [_text_of(piece, document) for piece in self._pieces]
        return None if None in texts else "".join(text for text in texts if text is not None)

    def partial(self, document: Any) -> str:
        """As much of it as there is; empty when no path of it selects a text."""
        texts = [(_text_of(piece, document), isinstance(piece, _Selection)) for piece in self._pieces]
        is_found = any(text for text, is_selected in texts if is_selected)
        return "".join(text for text, _ in texts if text is not None) if is_found else ""


class Alternatives:
    """Templates of which the first that has a value counts."""

    def __init__(self, texts: str | Sequence[str]) -> None:
        """Raises BadPath."""
        each = [texts] if isinstance(texts, str) else texts
        if len(each) > MOST:
            raise BadPath(f"it has {len(each)} alternatives: at most {MOST} are allowed")
        self._templates = [Template(text) for text in each]

    def value(self, document: Any) -> Any:
        """The value, of any type; None without one."""
        found = (template.value(document) for template in self._templates)
        return next((value for value in found if value is not None and value != ""), None)

    def text(self, document: Any) -> str | None:
        """The first value that is a text, a number or a boolean, as text."""
        found = (_text(template.value(document)) for template in self._templates)
        return next((text for text in found if text), None)

    def partial(self, document: Any) -> str:
        """As much of the first one as there is."""
        return next((text for template in self._templates if (text := template.partial(document))), "")


class _Selection:
    """A path and what its text passes through."""

    def __init__(self, text: str) -> None:
        piped = _PIPE.fullmatch(text)
        self._path = Path(piped[1] if piped else text)
        self._transform: Callable[[str], str | None] | None = None
        if piped:
            self._transform = TRANSFORMS.get(piped[2])
            if self._transform is None:
                raise BadPath(f"{text!r}: there is no {piped[2]!r}, only {', '.join(TRANSFORMS)}")

    def value(self, document: Any) -> Any:
        """What it selects."""
        found = self._path.first(document)
        if self._transform is None or found is None:
            return found
        text = _text(found)
        return self._transform(text) if text else None


def _pieces(text: str) -> list[str | _Selection]:
    pieces = _PART.split(text)  # text, path, text, path, …, text
    if any("{$" in piece for piece in pieces[::2]):
        raise BadPath(f"{text!r} has a `{{$` without its `}}`")
    return [_Selection(piece) if index % 2 else piece for index, piece in enumerate(pieces) if piece]


def _text_of(piece: str | _Selection, document: Any) -> str | None:
    return piece if isinstance(piece, str) else _text(piece.value(document))


def _text(value: Any) -> str | None:
    """A value within a text: as it is, or as JSON has it; objects, arrays and null are no text."""
    if isinstance(value, str):
        return value
    return msgspec.json.encode(value).decode() if isinstance(value, (bool, int, float)) else None
