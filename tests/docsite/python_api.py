"""The reference page of the Python package, from its signatures and docstrings.

It is read from the imported package: the operations of `Client` are made by descriptors, which no parser of the source
would see.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import knodel

PATH = "reference/python-api.md"
WIDTH = 100
_INDENTED = re.compile(r"^(?: {4}.*\n|\n(?= {4}))+", re.MULTILINE)


def python_api_page(package: ModuleType = knodel) -> str:
    """Return the page: clients, functions, results, errors."""
    names = {name: getattr(package, name) for name in package.__all__}
    errors = {name for name, made in names.items() if inspect.isclass(made) and issubclass(made, Exception)}
    classes = [name for name, made in names.items() if inspect.isclass(made) and name not in errors]
    clients = [name for name in classes if name.endswith("Client")]
    parts = {
        "Clients": clients,
        "Functions": [name for name, made in names.items() if inspect.isfunction(made)],
        "Results": [name for name in classes if name not in clients],
        "Errors and warnings": sorted(errors),
    }
    lines = [
        "# Python API",
        "",
        "The names that `import knodel` gives. [The guide](../python.md) shows them in use.",
        "",
    ]
    for title, members in parts.items():
        lines += [f"## {title}", ""]
        for name in members:
            lines += described(name, names[name])
    return "\n".join(lines)


def described(name: str, made: Any) -> Iterator[str]:
    """Yield the lines about one public name."""
    yield from (f"### {name}", "")
    if inspect.isfunction(made) or (inspect.isclass(made) and not issubclass(made, Exception)):
        yield from ("```python", signature(f"knodel.{name}", made), "```", "")
    yield from (docstring(made), "")
    if not inspect.isclass(made):
        return
    for member, value in vars(made).items():
        if member.startswith("_") or not (callable(value) or isinstance(value, property) or hasattr(value, "__get__")):
            continue
        method = getattr(made, member)
        text = docstring(value.fget if isinstance(value, property) else method)
        if not text:
            continue
        yield from (f"#### {name}.{member}", "")
        if callable(method) and not isinstance(value, property):
            yield from ("```python", signature(member, method), "```", "")
        yield from (text, "")


def signature(name: str, made: Any) -> str:
    """Return a signature on one line, or with a line for each parameter if it is long; without `self` and `core`.

    Values are made by Knodel, so only the name of their class is shown.
    """
    if dataclasses.is_dataclass(made):
        return f"class {name}"
    given = inspect.signature(made)
    kept = [_unquoted(one) for one in given.parameters.values() if one.name not in ("self", "core")]
    shown = given.replace(parameters=kept, return_annotation=_Annotation.of(given.return_annotation))
    line = f"{name}{shown}"
    if len(line) <= WIDTH:
        return line
    parts = [str(one) for one in kept]
    by_name = next((number for number, one in enumerate(kept) if one.kind is inspect.Parameter.KEYWORD_ONLY), None)
    if by_name is not None:
        parts.insert(by_name, "*")
    return "\n".join([f"{name}(", *(f"    {part}," for part in parts), line[line.rindex(")") :]])


class _Annotation(str):
    """The text of an annotation, which `str` of a signature shows without quotes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)

    @classmethod
    def of(cls, annotation: Any) -> Any:
        return cls(annotation) if isinstance(annotation, str) else annotation


def _unquoted(parameter: inspect.Parameter) -> inspect.Parameter:
    return parameter.replace(annotation=_Annotation.of(parameter.annotation))


def docstring(made: Any) -> str:
    """Return a docstring as Markdown: examples and other indented parts are code."""
    text = inspect.getdoc(made) or ""
    text = text.replace("\nExample:\n", "\n\nExample:\n\n")
    return _INDENTED.sub(lambda block: f"```python\n{inspect.cleandoc(block[0])}\n```\n", text + "\n").strip()
