"""The reasons of conditions, read from the source: arguments of calls that make a condition, and declared reasons."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Final

PACKAGES: Final = ("serving", "autoscaler", "eventing", "clusters")
MAKERS: Final = {
    "State": 1, "ReplicaState": 1, "Readiness": 1, "Failure": 1, "BlockedReason": 0, "mark_rollout_held": 0,
    "mark_objects_refused": 0, "mark_replica_waiting": 0, "mark_unknown": 1, "mark_false": 1, "mark_true": 1,
    "Waiting": 0, "_mark_resources_unavailable": 0, "EventStatus": 1, "condition": 3, "with_condition": 4,
}  # fmt: skip
"""Functions that make a condition, with the place of the reason among their arguments."""
STATUSES: Final = ("True", "False", "Unknown")
PARTS: Final = 4
DECLARING: Final = ("Reason", "reason")
"""How the description of a constant begins that is the reason of a condition."""


def find_reasons(root: Path) -> dict[str, set[str]]:
    """Return each reason with the modules that use it."""
    trees = parse_packages(root)
    constants = {path: dict(_constants(tree)) for path, tree in trees.items()}
    everywhere = {name: value for values in constants.values() for name, value in values.items()}
    found: dict[str, set[str]] = defaultdict(set)
    for path, tree in trees.items():
        known = {**everywhere, **constants[path]}
        for reason in (*_called(tree, known), *_declared(tree), *_returned(tree, known)):
            if reason[:1].isupper() and reason.isalnum():
                found[reason].add(path.relative_to(root).as_posix())
    return dict(found)


@cache
def parse_packages(root: Path) -> Mapping[Path, ast.Module]:
    """Return the syntax tree of each module."""
    paths = (path for package in PACKAGES for path in sorted((root / package).rglob("*.py")))
    return {path: ast.parse(path.read_text(encoding="utf-8")) for path in paths}


def _constants(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for node in tree.body:
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        value = getattr(node, "value", None)
        if isinstance(target, ast.Name) and isinstance(value, ast.Constant) and isinstance(value.value, str):
            yield target.id, value.value


def _called(tree: ast.Module, constants: Mapping[str, str]) -> Iterator[str]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        place = MAKERS.get(name)
        given = [one.value for one in node.keywords if one.arg == "reason"]
        if place is not None and len(node.args) > place:
            given.append(node.args[place])
        for argument in given if place is not None else ():
            yield from _values(argument, constants)


def _values(node: ast.expr, constants: Mapping[str, str]) -> Iterator[str]:
    """Yield each text that an expression may be: `A if … else "B"` is two."""
    if isinstance(node, ast.IfExp):
        yield from (*_values(node.body, constants), *_values(node.orelse, constants))
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.Name) and node.id in constants:
        yield constants[node.id]
    elif isinstance(node, ast.JoinedStr) and isinstance(node.values[0], ast.Constant):
        yield f"{node.values[0].value!s}N"  # a number follows, as in ExitCode137


def _returned(tree: ast.Module, constants: Mapping[str, str]) -> Iterator[str]:
    """Yield reasons in tuples of a condition (status, time, reason, message), and those of a variable `reason`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Tuple) and len(node.elts) == PARTS:
            status = node.elts[0]
            if isinstance(status, ast.Constant) and status.value in STATUSES:
                yield from _values(node.elts[2], constants)
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == "reason":
            yield from _values(node.value, constants)


def _declared(tree: ast.Module) -> Iterator[str]:
    """Yield constants that are described as reasons, and `reason = "…"` of classes."""
    for body in (tree.body, *(node.body for node in ast.walk(tree) if isinstance(node, ast.ClassDef))):
        for node, after in zip(body, (*body[1:], None), strict=True):
            target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
            value = getattr(node, "value", None)
            if not (isinstance(target, ast.Name) and isinstance(value, ast.Constant) and isinstance(value.value, str)):
                continue
            described = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
            text = str(after.value.value) if described else ""  # type: ignore[union-attr]
            if target.id == "reason" or text.startswith(DECLARING):
                yield value.value
