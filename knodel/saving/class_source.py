"""Write the source of a class as a module of its own: the class, and what it uses of its module or notebook.

What it uses is found by its global names, as Python resolves them:

    a module, or a class or function of one    the import
    a class or function beside it              its source, with what that uses
    a number, a text, or a container of them   an assignment of its present value
    anything else                              an error, since it is state that source does not contain
"""

from __future__ import annotations
import __future__

import ast
import builtins
import importlib
import inspect
import linecache
import symtable
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from pathlib import Path
from textwrap import dedent
from types import CodeType, FunctionType, ModuleType
from typing import Any, Final

from knodel.saving.errors import NotSaved

FILE: Final = "model.py"
CLASS: Final = "Model"
"""The names under which the model server finds the class (`serving.engines.python.module`)."""
OWN_FOLDER: Final = "write a folder with model.py and the other files, and deploy the folder with model_format='python'"
_OUR_OWN: Final = frozenset({"knodel", "serving", "clusters"})
_POSTPONED: Final = "from __future__ import annotations"
_BUILTINS: Final = frozenset(dir(builtins)) - {"__name__"}


def source_of(made: type) -> str:
    """Return the text of a module in which `Model` is the class. Raises NotSaved."""
    return _Module(made).text()


class _Module:
    """The module of one class, collected from the namespaces in which its parts were defined."""

    def __init__(self, made: type) -> None:
        self._what = f"class {made.__name__}"
        self._postponed = False
        self._imports: dict[str, None] = {}
        self._parts: list[str] = []
        self._origins: dict[str, Any] = {made.__name__: made}
        self._define(made)
        if made.__name__ != CLASS and CLASS in self._origins:
            raise NotSaved(f"{self._what} uses another class {CLASS}: rename that one, since the server loads {CLASS}")
        if made.__name__ != CLASS:
            self._parts.append(f"{CLASS} = {made.__name__}")

    def text(self) -> str:
        head = [_POSTPONED] if self._postponed else []
        sections = ["\n".join(head), "\n".join(self._imports), *self._parts]
        return "\n\n\n".join(section for section in sections if section) + "\n"

    def _define(self, value: Any) -> None:
        """Add the source of a class or function, after what it uses."""
        code, namespace = self._code_of(value)
        source = self._segment(value, code)
        postponed = bool(code.co_flags & __future__.annotations.compiler_flag)
        self._postponed |= postponed
        for used in global_names(f"{_POSTPONED}\n{source}" if postponed else source):
            if used in namespace:  # any other name is one of Python's own, or is assigned when the code runs
                self._use(used, namespace[used], namespace)
        for module in submodules(source, namespace):
            self._check_installed(module)
            self._imports[f"import {module}"] = None
        self._parts.append(source)

    def _use(self, name: str, value: Any, namespace: Mapping[str, Any]) -> None:
        """Add what a global name stands for, once."""
        if name in self._origins:
            if self._origins[name] is not value:
                raise NotSaved(f"{self._what} uses two different things called {name}: rename one of them")
            return
        self._origins[name] = value
        inner = inspect.unwrap(value) if callable(value) else value
        if isinstance(value, ModuleType):
            self._check_installed(value.__name__)
            own = value.__name__
            self._imports[f"import {own}" if name == own else f"import {own} as {name}"] = None
        elif isinstance(inner, type | FunctionType) and inner.__module__ == namespace.get("__name__"):
            if name != inner.__name__:
                self._use(inner.__name__, value, namespace)
                self._parts.append(f"{name} = {inner.__name__}")
            else:
                self._define(inner)
        elif callable(value) and _is_importable(value):
            self._check_installed(value.__module__)
            own = value.__qualname__
            self._imports[f"from {value.__module__} import {own}" + (f" as {name}" if name != own else "")] = None
        elif _is_literal(value):
            self._parts.append(f"{name} = {value!r}")
        else:
            raise NotSaved(
                f"{self._what} uses {name}, which is a {type(value).__name__} in memory: save it to a file and read it "
                f"in load(self, folder); {OWN_FOLDER}"
            )

    def _check_installed(self, module: str) -> None:
        if not is_installed(module):
            raise NotSaved(f"{self._what} uses the module {module}, which is a file of this machine: {OWN_FOLDER}")

    def _code_of(self, value: Any) -> tuple[CodeType, Mapping[str, Any]]:
        """Return the code of a function, or of the first method of a class, and its namespace."""
        for function in [value] if isinstance(value, FunctionType) else _methods(value):
            return function.__code__, function.__globals__
        raise NotSaved(
            f"class {value.__name__} has no method of its own, which its source is found by: define one in it"
        )

    def _segment(self, value: Any, code: CodeType) -> str:
        """Return the source of a class or function, with its decorators."""
        name = value.__name__
        if "<lambda>" in name:
            raise NotSaved(f"{self._what} uses a lambda, whose source cannot be separated: write it with def")
        if "<locals>" in value.__qualname__:
            raise NotSaved(f"{name} is defined inside a function: define it at the top of a module or of a cell")
        linecache.checkcache(code.co_filename)
        text = "".join(linecache.getlines(code.co_filename))
        try:
            tree = ast.parse(text)
        except SyntaxError:  # a cell with commands of IPython, whose lines a transformed cell does not have
            tree = ast.Module([], [])
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name:
                first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
                end = node.end_lineno or node.lineno
                if first <= code.co_firstlineno <= end:
                    return dedent("\n".join(text.splitlines()[first - 1 : end]))
        raise NotSaved(
            f"{name} has no source here, or it has changed: define it in a file, or in a notebook cell without %%, and "
            "run that again"
        )


def global_names(source: str) -> list[str]:
    """Return the global names that a module's text uses and does not define, sorted. Pure."""
    table = symtable.symtable(source, "<class>", "exec")
    own = {symbol.get_name() for symbol in table.get_symbols() if symbol.is_assigned()}
    used = {
        symbol.get_name()
        for scope in _scopes(table) for symbol in scope.get_symbols()
        if symbol.is_referenced() and (scope is table or symbol.is_global())
    }  # fmt: skip
    return sorted(used - own - _BUILTINS)


def submodules(source: str, namespace: Mapping[str, Any]) -> list[str]:
    """Return the loaded submodules that a text uses as attributes of their package, such as `scipy.sparse`."""
    found: dict[str, None] = {}
    for node in ast.walk(ast.parse(source)):
        path: list[str] = []
        inner: ast.AST = node
        while isinstance(inner, ast.Attribute):
            path.insert(0, inner.attr)
            inner = inner.value
        package = namespace.get(inner.id) if isinstance(inner, ast.Name) else None
        if path and isinstance(package, ModuleType):
            name = f"{package.__name__}.{'.'.join(path)}"
            if name in sys.modules:
                found[name] = None
    return list(found)


def is_installed(module: str) -> bool:
    """Return whether a module belongs to Python or to an installed package, so that a server can have it too."""
    top = module.partition(".")[0]
    if top in _OUR_OWN or top in sys.stdlib_module_names:
        return True
    found = getattr(sys.modules.get(top), "__file__", None) or getattr(sys.modules.get(module), "__file__", None)
    places = {Path(path).resolve() for path in (sysconfig.get_path("purelib"), sysconfig.get_path("platlib"))}
    places |= {Path(path).resolve() for path in sys.path if Path(path).name in ("site-packages", "dist-packages")}
    return found is not None and any(Path(found).resolve().is_relative_to(place) for place in places)


def _scopes(table: symtable.SymbolTable) -> Iterator[symtable.SymbolTable]:
    yield table
    for child in table.get_children():
        yield from _scopes(child)


def _methods(made: type) -> Iterator[FunctionType]:
    """Yield the methods that the class defines, without those that `dataclass` has generated."""
    generated = "<string>" if "__dataclass_fields__" in vars(made) else None
    for member in vars(made).values():
        function = inspect.unwrap(getattr(member, "__func__", None) or getattr(member, "fget", None) or member)
        if not isinstance(function, FunctionType) or function.__code__.co_filename == generated:
            continue
        if function.__qualname__.startswith(f"{made.__qualname__}."):
            yield function


def _is_importable(value: Any) -> bool:
    """Return whether an import of its name from its module gives the value."""
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", "")
    if not isinstance(module, str) or module == "__main__" or not name.isidentifier():
        return False
    try:
        return getattr(importlib.import_module(module), name, None) is value
    except ImportError:
        return False


def _is_literal(value: Any) -> bool:
    """Return whether the representation of a value is an expression of the same value."""
    try:
        return type(found := ast.literal_eval(repr(value))) is type(value) and found == value
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        return False
