"""The fields of a foreign object while it is converted, and the result. Pure.

Every leaf of the object is carried into the Model, meaningless here by a rule, or left out with a reason.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeAlias

from clusters.base.errors import Invalid, KnodelError
from clusters.base.objects import MODEL, Object
from clusters.base.redact import one_line, redact_url
from serving.types.validation import read_model

FieldPath: TypeAlias = "tuple[str | int, ...]"
ANY: Final = "*"
"""In a pattern: any field or index."""
MAX_SHOWN: Final = 80
"""Characters of a value in a report."""
_SECRET_WORDS: Final = ("password", "secret", "token", "key", "credential")


class LeftOut(NamedTuple):
    """A field that no Model has: its path, its value as text, why, and what to do instead."""

    path: str
    value: str
    why: str
    instead: str


class Rule(NamedTuple):
    """What happens to the fields below `pattern`: left out, or without a meaning here if `instead` is empty."""

    pattern: FieldPath
    why: str
    instead: str = ""


EMPTY: Final = Rule((), "it is empty")


@dataclass(frozen=True)
class Conversion:
    """The result for one object: at most one Model, and the fields that it does not have.

    source      kind, namespace and name of the object
    models      the Model; empty when the object cannot be converted, which `left_out` explains
    left_out    fields that were not carried
    to_do       what must be done before the Model can serve
    carried     the path of each carried field, and the Model's field
    dropped     the path of each field without a meaning here, and why
    """

    source: str
    models: tuple[Object, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    to_do: tuple[str, ...] = ()
    carried: Mapping[str, str] = field(default_factory=dict)
    dropped: Mapping[str, str] = field(default_factory=dict)


class NotConverted(KnodelError):
    """The object cannot be a Model. The message has the reason, `instead` what to do."""

    def __init__(self, why: str, instead: str, path: FieldPath = ()) -> None:
        super().__init__(why)
        self.instead = instead
        self.path = path


class ForeignObject:
    """A foreign object and the Model that is made of it.

    `take` and `carry` mark fields as carried. `finish` applies rules to the other ones. `stores` has the URI of each
    key of KServe's Secret with stores.
    """

    def __init__(self, document: Object, stores: Mapping[str, str] = MappingProxyType({})) -> None:
        self.document = document
        self.stores = stores
        self.spec: dict[str, Any] = {}
        self.metadata: dict[str, Any] = {}
        self.left_out: list[LeftOut] = []
        self.to_do: list[str] = []
        self.carried: dict[str, str] = {}
        self.dropped: dict[str, str] = {}
        self._origins: dict[str, FieldPath] = {}
        self._open = dict(leaves(document))

    @property
    def source(self) -> str:
        """Kind, namespace and name of the object."""
        metadata = self.document.get("metadata")
        given = metadata if isinstance(metadata, dict) else {}
        name = "/".join(str(part) for part in (given.get("namespace"), given.get("name")) if part)
        return one_line(f"{self.document.get('kind')} {name or 'without a name'}", MAX_SHOWN)

    def get(self, *path: str | int) -> Any:
        """Return the value at a path, or None."""
        value: Any = self.document
        for part in path:
            if isinstance(value, Mapping):
                value = value.get(str(part))
            elif isinstance(value, list) and isinstance(part, int) and part < len(value):
                value = value[part]
            else:
                return None
        return value

    def take(self, path: FieldPath, to: str) -> Any:
        """Return the value at a path, and mark it as carried into the Model's field `to`. None if it was marked."""
        below = self._below(path)
        if not below:
            return None
        for leaf in below:
            del self._open[leaf]
        self.carried[shown_path(path)] = to
        self._origins.setdefault(to, path)
        return self.get(*path)

    def text(self, path: FieldPath, to: str) -> str:
        """Return the text at a path, "" if it is absent. Raises NotConverted for another value."""
        value = self.take(path, to)
        if value is not None and not isinstance(value, str):
            raise NotConverted("is not a text", "correct it", path)
        return value or ""

    def carry(self, path: FieldPath, to: str, value: Any = None) -> None:
        """Set the field `to` of the Model's spec to a value, by default that of the path, if the path has one."""
        found = self.take(path, f"spec.{to}")
        if found is None:
            return
        self.put(to, found if value is None else value)

    def put(self, to: str, value: Any) -> None:
        """Set a field of the Model's spec, which may be nested (`batching.maxLatency`), unless it is set."""
        target = self.spec
        *parents, last = to.split(".")
        for part in parents:
            target = target.setdefault(part, {})
        target.setdefault(last, value)

    def drop(self, path: FieldPath, why: str) -> None:
        """Mark the fields below a path as without a meaning here."""
        for leaf in self._below(path):
            self.dropped[shown_path(leaf)] = why
            del self._open[leaf]

    def leave(self, path: FieldPath, why: str, instead: str) -> None:
        """Mark the fields below a path as left out."""
        below = self._below(path)
        if below:
            self.left_out.append(
                LeftOut(shown_path(path), shown_value(path, self.get(*path), len(below)), why, instead)
            )
        for leaf in below:
            del self._open[leaf]

    def finish(self, rules: Sequence[Rule], otherwise: Rule) -> Conversion:
        """Apply the first rule that matches to each remaining field, and return the conversion with the valid Model.

        Raises NotConverted when the Model lacks what it needs.
        """
        model = self._valid_model()
        self._apply(rules, otherwise)
        return Conversion(
            self.source, (model,), tuple(self.left_out), tuple(self.to_do), dict(self.carried), dict(self.dropped)
        )

    def refuse(self, error: NotConverted) -> Conversion:
        """Return the conversion of an object that is no Model."""
        value = shown_value(error.path, self.get(*error.path), 0) if error.path else ""
        reason = LeftOut(shown_path(error.path), value, str(error), error.instead)
        return Conversion(self.source, left_out=(reason,))

    def _valid_model(self) -> Object:
        """Return the Model, without fields whose values a Model cannot have: they are left out."""
        for _ in range(len(self._origins) + 1):
            model = {
                "apiVersion": MODEL.api_version, "kind": MODEL.kind, "metadata": self.metadata, "spec": self.spec,
            }  # fmt: skip
            try:
                read_model(model)
            except Invalid as error:
                for fault in error.causes:
                    self._without(fault.path, fault.message)
            else:
                return model
        raise NotConverted("has values that no Model can have", "correct them")

    def _without(self, path: str, message: str) -> None:
        """Remove a refused field of the Model. Raises NotConverted if it cannot do without."""
        origin = self._origins.get(path)
        parts = path.split(".")
        if origin is None or parts[0] != "spec" or path == "spec.storageUri":
            raise NotConverted(f"{path} of the Model {message}", "correct it", origin or ())
        parent = self.spec
        for part in parts[1:-1]:
            parent = parent.get(part, {})
        parent.pop(parts[-1], None)
        if parts[1:-1] and not parent:
            self.spec.pop(parts[1], None)
        value = self.get(*origin)
        self.left_out.append(LeftOut(shown_path(origin), shown_value(origin, value, 1), message, f"set {path}"))
        self.carried.pop(shown_path(origin), None)
        del self._origins[path]

    def _apply(self, rules: Sequence[Rule], otherwise: Rule) -> None:
        for leaf in list(self._open):
            if leaf not in self._open:
                continue  # left out together with another one
            unknown = EMPTY if self._open[leaf] in ({}, [], "") else otherwise
            rule = next((one for one in rules if matches(one.pattern, leaf)), unknown)
            below = leaf[: len(rule.pattern)] if rule.pattern else leaf
            if rule.instead:
                self.leave(below, rule.why, rule.instead)
            else:
                self.drop(below, rule.why)

    def _below(self, path: FieldPath) -> list[FieldPath]:
        return [leaf for leaf in self._open if leaf[: len(path)] == path]


def leaves(value: Any, path: FieldPath = ()) -> Iterator[tuple[FieldPath, Any]]:
    """Yield path and value of each value that is not a mapping or list with members; null is absent."""
    if value is None:
        return
    members = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else ()
    if not members or not value:
        yield path, value
        return
    for name, member in members:
        yield from leaves(member, (*path, name))


def matches(pattern: FieldPath, path: FieldPath) -> bool:
    """Return whether a path is the pattern or below it. `*` stands for one part, `PREFIX*` for those that begin so."""
    return len(path) >= len(pattern) and all(
        expected in (ANY, part)
        or (isinstance(expected, str) and expected.endswith(ANY) and str(part).startswith(expected[:-1]))
        for expected, part in zip(pattern, path, strict=False)
    )


def shown_path(path: FieldPath) -> str:
    """Return a path as text: `spec.predictor.containers[0].image`, `metadata.annotations[a.b/c]`."""
    text = ""
    for part in path:
        plain = isinstance(part, str) and not set("./[] ") & set(part)
        text += (f".{part}" if text else str(part)) if plain else f"[{part}]"
    return one_line(text, 200)


def shown_value(path: FieldPath, value: Any, count: int) -> str:
    """Return a value as one short line; of several fields, their number. Values that look secret are not shown."""
    if any(word in str(part).lower() for part in path[-1:] for word in _SECRET_WORDS):
        return "…"
    if isinstance(value, Mapping | list):
        return f"{count} field{'s' if count != 1 else ''}" if count else ""
    if isinstance(value, str) and "://" in value:
        value = redact_url(value)
    return one_line(json.dumps(value, ensure_ascii=False, default=str), MAX_SHOWN) if value is not None else ""
