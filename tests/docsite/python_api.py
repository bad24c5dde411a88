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
    """Return a signature on one line, or with a line for each parameter if it is long; without `self` and `core`."""
    given = inspect.signature(made)
    kept = [parameter for parameter in given.parameters.values() if parameter.name not in ("self", "core")]
    hidden = dataclasses.is_dataclass(made) or "factory" in str(given)
    if inspect.isclass(made) and hidden:
        return f"class {name}"
    shown = given.replace(parameters=kept)
    line = f"{name}{shown}".replace("'", "")
    if len(line) <= 100:
        return line
    parts = [str(parameter).replace("'", "") for parameter in kept]
    first_keyword = next((i for i, one in enumerate(kept) if one.kind is inspect.Parameter.KEYWORD_ONLY), None)
    if first_keyword is not None:
        parts.insert(first_keyword, "*")
    ending = f" -> {given.return_annotation}".replace("'", "")
    returned = "" if given.return_annotation is inspect.Signature.empty else ending
    return "\n".join([f"{name}(", *(f"    {part}," for part in parts), f"){returned}"])


def docstring(made: Any) -> str:
    """Return a docstring as Markdown: examples and other indented parts are code."""
    text = inspect.getdoc(made) or ""
    text = text.replace("\nExample:\n", "\n\nExample:\n\n")
    return _INDENTED.sub(lambda block: f"```python\n{inspect.cleandoc(block[0])}\n```\n", text + "\n").strip()
