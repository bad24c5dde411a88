"""Texts of Helm templates from objects: values are inserted at places of an object, and all else stays as it is. Pure.

An insertion is put into an object as a token. The object is written as YAML, and each line with a token is replaced.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Sequence
from typing import Any, Final

import yaml

from clusters.base.objects import Object
from tests.manifests.text import WIDTH, BlockDumper

_TOKEN: Final = re.compile(r"TOKEN(\d+)END")
Lines = Callable[[str, str], list[str]]
"""The lines that replace one, from its indentation and the text before the token."""


class Insertions:
    """The insertions into one object."""

    def __init__(self, obj: Object) -> None:
        self.object = copy.deepcopy(obj)
        self._lines: list[Lines] = []

    def at(self, *path: str | int) -> Any:
        """Return the value at a path of the object. Raises KeyError, IndexError."""
        found: Any = self.object
        for step in path:
            found = found[step]
        return found

    def scalar(self, path: Sequence[str | int], expression: str) -> None:
        """Replace the value at `path` by that of an expression."""
        self.at(*path[:-1])[path[-1]] = self._token(lambda _, before: [f"{before}{{{{ {expression} }}}}"])

    def block(self, path: Sequence[str | int], value: str) -> None:
        """Replace the value at `path` by a mapping or a list of the values."""
        self.at(*path[:-1])[path[-1]] = self._token(
            lambda indent, before: [f"{before}{{{{- toYaml {value} | nindent {len(indent) + 2} }}}}"]
        )

    def optional(self, path: Sequence[str | int], key: str, value: str) -> None:
        """Add a key to the mapping at `path` if the value is not empty."""
        self.at(*path)[self._token(lambda indent, _: _with(indent, value, key))] = None

    def items(self, path: Sequence[str | int], value: str) -> None:
        """Append the items of a list of the values to the list at `path`."""
        self.at(*path).append(self._token(lambda indent, _: _with(indent, value, "")))

    def lines(self, path: Sequence[str | int], *lines: str) -> None:
        """Append lines to the list or mapping at `path`, indented as its items are."""
        target, token = self.at(*path), self._token(lambda indent, _: [f"{indent}{line}" for line in lines])
        if isinstance(target, list):
            target.append(token)
        else:
            target[token] = None

    def literal(self, path: Sequence[str | int], expression: str) -> None:
        """Replace the text at `path` by that of an expression, as a block of lines."""
        self.at(*path[:-1])[path[-1]] = self._token(
            lambda indent, before: [f"{before}|", f"{indent}  {{{{- {expression} | nindent {len(indent) + 2} }}}}"]
        )

    def text(self) -> str:
        """Return the template."""
        dumped = yaml.dump(self.object, Dumper=BlockDumper, sort_keys=False, width=WIDTH, allow_unicode=True)
        made: list[str] = []
        for line in dumped.splitlines():
            found = _TOKEN.search(line)
            if found is None:
                made.append(line.replace("{{", '{{ "{{" }}'))
            else:
                indent = line[: len(line) - len(line.lstrip(" "))]
                made += self._lines[int(found[1])](indent, line[: found.start()])
        return "\n".join(made) + "\n"

    def _token(self, lines: Lines) -> str:
        self._lines.append(lines)
        return f"TOKEN{len(self._lines) - 1}END"


def _with(indent: str, value: str, key: str) -> list[str]:
    """Return lines that insert a value, below `key` if there is one, unless it is empty."""
    below = len(indent) + (2 if key else 0)
    inserted = f"{{{{- toYaml . | nindent {below} }}}}"
    return [f"{indent}{{{{- with {value} }}}}", f"{indent}{key}: {inserted}" if key else f"{indent}{inserted}",
            f"{indent}{{{{- end }}}}"]  # fmt: skip


def conditional(condition: str, texts: Sequence[str]) -> str:
    """Return documents that are rendered if the condition holds; always for an empty condition."""
    documents = "".join(f"---\n{text}" for text in texts)
    return f"{{{{- if {condition} }}}}\n{documents}{{{{- end }}}}\n" if condition else documents
