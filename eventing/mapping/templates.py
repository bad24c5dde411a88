"""Templates for the values of a mapping. Pure.

    iris                                     a constant text
    $.data.metadata.annotations['a/b']       the value that a path selects, of any type
    s3://models/{$.data.name | label}/       a text that contains selected values
    [$.data.version, $.data.name]            the first alternative that has a value

After a path, ` | NAME` applies one of `transforms.TRANSFORMS` to the text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from eventing.mapping.paths import ROOT, BadPath, Path
from eventing.mapping.transforms import TRANSFORMS

MOST: Final = 16
"""Maximum number of alternatives of a value: each visits the event again."""
LONGEST: Final = 2048
"""Maximum characters of a template: those of a storageUri."""
_PART: Final = re.compile(r"""\{(\$(?:[^{}'"]|'[^']*'|"[^"]*")*)\}""")
_PIPE: Final = re.compile(r"(.*?)\s+\|\s+(\w+)", re.DOTALL)


class Template:
    """One compiled template."""

    def __init__(self, text: str) -> None:
        """Compile a template. Raises BadPath."""
        if not text or len(text) > LONGEST:
            raise BadPath(f"the template has {len(text)} characters, but must have 1 to {LONGEST}")
        self._pieces = [_Selection(text)] if text.startswith(ROOT) else _pieces(text)

    @property
    def is_constant(self) -> bool:
        """Whether the template has no paths."""
        return not any(isinstance(piece, _Selection) for piece in self._pieces)

    def value(self, document: Any) -> Any:
        """Return the template's value for a document, None if one of its paths selects nothing."""
        if len(self._pieces) == 1 and isinstance(self._pieces[0], _Selection):
            return self._pieces[0].value(document)
        texts = [_text_of(piece, document) for piece in self._pieces]
        return None if None in texts else "".join(text for text in texts if text is not None)

    def partial(self, document: Any) -> str:
        """Return the text without paths that select nothing; empty if none of them selects a text."""
        texts = [(_text_of(piece, document), isinstance(piece, _Selection)) for piece in self._pieces]
        is_found = any(text for text, is_selected in texts if is_selected)
        return "".join(text for text, _ in texts if text is not None) if is_found else ""


class Alternatives:
    """Templates of which the first with a value is used."""

    def __init__(self, texts: str | Sequence[str]) -> None:
        """Compile the templates. Raises BadPath."""
        each = [texts] if isinstance(texts, str) else texts
        if len(each) > MOST:
            raise BadPath(f"it has {len(each)} alternatives, but at most {MOST} are allowed")
        self._templates = [Template(text) for text in each]

    def value(self, document: Any) -> Any:
        """Return the first value of any type, or None."""
        found = (template.value(document) for template in self._templates)
        return next((value for value in found if value is not None and value != ""), None)

    def text(self, document: Any) -> str | None:
        """Return the first text, number or boolean as text, or None."""
        found = (_text(template.value(document)) for template in self._templates)
        return next((text for text in found if text), None)

    def partial(self, document: Any) -> str:
        """Return the first `Template.partial` text that is not empty."""
        return next((text for template in self._templates if (text := template.partial(document))), "")


class _Selection:
    """A path and an optional transform of the selected text."""

    def __init__(self, text: str) -> None:
        piped = _PIPE.fullmatch(text)
        self._path = Path(piped[1] if piped else text)
        self._transform: Callable[[str], str | None] | None = None
        if piped:
            self._transform = TRANSFORMS.get(piped[2])
            if self._transform is None:
                raise BadPath(f"{text!r}: unknown transform {piped[2]!r}: use one of {', '.join(TRANSFORMS)}")

    def value(self, document: Any) -> Any:
        """Return the selected and transformed value, or None."""
        found = self._path.first(document)
        if self._transform is None or found is None:
            return found
        text = _text(found)
        return self._transform(text) if text else None


def _pieces(text: str) -> list[str | _Selection]:
    pieces = _PART.split(text)  # text, path, text, path, …, text
    if any("{$" in piece for piece in pieces[::2]):
        raise BadPath(f"{text!r} has a `{{$` without a closing `}}`")
    return [_Selection(piece) if index % 2 else piece for index, piece in enumerate(pieces) if piece]


def _text_of(piece: str | _Selection, document: Any) -> str | None:
    return piece if isinstance(piece, str) else _text(piece.value(document))


def _text(value: Any) -> str | None:
    """Return a text, or a number or boolean as JSON; None for objects, arrays and null."""
    if isinstance(value, str):
        return value
    return msgspec.json.encode(value).decode() if isinstance(value, (bool, int, float)) else None
