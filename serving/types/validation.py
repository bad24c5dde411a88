"""Validate objects of Knodel's kinds and read Models, with every fault at once, each with its field path. Pure.

`KindTable.validate` and `validate_model` are admission checks. All other code reads a Model's fields with `read_model`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, TypeVar, get_args

from clusters.base.errors import FieldError, Invalid
from clusters.base.names import LONGEST_LABEL, dns_label_fault
from clusters.base.objects import MODEL, Kind, Object
from serving.types import formats
from serving.types.annotations import ANNOTATION_CAUSE, ANNOTATION_ROLLOUT
from serving.types.fields import Format, Text
from serving.types.model import CAUSE, HOST_RULES, By, Cause, Model, ModelSpec, host_faults
from serving.types.reader import Reader, short_repr
from serving.types.rollout import Command, command_fault, parse_command
from serving.types.schema import Schema
from serving.types.tables import Nested, read, table_of

S = TypeVar("S")

NAMESPACE = Text("Namespace.", Format(dns_label_fault, LONGEST_LABEL))
ROLLOUT = Text("Command for a rollout.", Format(command_fault, LONGEST_LABEL))
CAUSE_TEXT = Text("Cause of the change.", Format(lambda _: "", 0))


@dataclass(frozen=True)
class KindTable(Generic[S]):
    """The table of a kind: its name's format, the class with the fields of its spec, and rules for both.

    `rules` are CEL rules of the whole object, `faults(namespace, name, spec)` the same checks in Python: it yields
    paths and messages.
    """

    kind: Kind
    about: str
    name: Format
    spec: type[S]
    rules: tuple[Schema, ...] = ()
    faults: Callable[[str, str, S], Iterable[tuple[str, str]]] = lambda *_: ()

    def validate(self, old: Object | None, new: Object) -> Sequence[FieldError]:
        """Return every fault of `new`.

        Without a change to the fields that callers write there are none, so that the status can always be written.
        """
        if old is not None and _written(old) == _written(new):
            return ()
        return self.read(new)[2]

    def read(self, obj: Object) -> tuple[S, Reader, list[FieldError]]:
        """Return the spec with all defaults, a reader of the metadata, and every fault. It is valid without faults."""
        errors: list[FieldError] = []
        top = Reader(obj, "", errors)
        for name, expected in (("apiVersion", self.kind.api_version), ("kind", self.kind.kind)):
            if (given := obj.get(name)) != expected:
                top.refuse(name, f"must be {expected}, not {short_repr(given)}" if given is not None else "is required")
        metadata = _below(top, "metadata")
        names = {"name": "", "namespace": ""}
        for field, one in (("name", self._name), ("namespace", NAMESPACE)):
            if (value := metadata.given.get(field)) is not None:
                names[field] = one.read(value, metadata, field) or ""
            elif field == "name":
                metadata.refuse(field, "is required")
        for name in obj:
            if name not in _KNOWN and obj[name] is not None:
                top.refuse_unknown(name, _KNOWN)
        spec = obj.get("spec")
        if isinstance(spec, Mapping):
            made = read(self.spec, Reader(spec, "spec", errors))
            for path, message in self.faults(names["namespace"], names["name"], made):
                top.refuse(path, message)
        else:
            whole = Nested("", self.spec)
            needed = any(field.required for field in table_of(self.spec).values())
            top.refuse("spec", f"is required: {whole.expected()}{'' if needed else ', {} for every default'}")
            made = whole.empty()
        return made, metadata, errors

    @cached_property
    def _name(self) -> Text:
        return Text("Name.", self.name)

    def require_valid(self, obj: Object, errors: Sequence[FieldError]) -> None:
        """Raise Invalid if the object has faults."""
        if errors:
            name = short_repr((obj.get("metadata") or {}).get("name", ""))[1:-1]
            raise Invalid(f"{self.kind.kind} {name}", errors)


_KNOWN = ("apiVersion", "kind", "metadata", "spec", "status")

MODEL_TABLE = KindTable(
    MODEL,
    "A served model: its files, its scaling, and the traffic of its versions.",
    formats.MODEL_NAME,
    ModelSpec,
    HOST_RULES,
    lambda _, name, spec: host_faults(name, spec),
)


def validate_model(old: Object | None, new: Object) -> Sequence[FieldError]:
    """Return every fault of `new`, with those of its annotations.

    Without a change to the fields that callers write there are none, so that the status can always be written.
    """
    if old is not None and _claims(old) == _claims(new):
        return ()
    return _read(new)[1]


def read_model(obj: Object) -> Model:
    """Return the Model with all defaults. Raises Invalid with every fault."""
    model, errors = _read(obj)
    MODEL_TABLE.require_valid(obj, errors)
    return model


def _written(obj: Object) -> dict[str, Any]:
    return {name: value for name, value in obj.items() if name not in ("metadata", "status")}


def _claims(obj: Object) -> tuple[Any, Any]:
    """Return everything that a caller may have written: the spec, Knodel's annotations, and unknown fields."""
    annotations = obj["metadata"].get("annotations") or {}
    return _written(obj), [annotations.get(name) for name in (ANNOTATION_CAUSE, ANNOTATION_ROLLOUT)]


def _below(at: Reader, name: str) -> Reader:
    """Return a reader of the mapping `name`, which is empty when it is absent or refused."""
    value = at.given.get(name)
    if value is not None and not isinstance(value, Mapping):
        at.refuse(name, f"must be a mapping, not {short_repr(value)}")
    return Reader(value if isinstance(value, Mapping) else {}, at.at(name), at.errors)


def _read(obj: Object) -> tuple[Model, list[FieldError]]:
    spec, metadata, errors = MODEL_TABLE.read(obj)
    annotations = _below(metadata, "annotations")
    return Model(obj, spec, _read_cause(annotations), _read_command(annotations)), errors


def _read_command(annotations: Reader) -> Command | None:
    value = annotations.given.get(ANNOTATION_ROLLOUT)
    return None if value is None else parse_command(ROLLOUT.read(value, annotations, ANNOTATION_ROLLOUT) or "")


def _read_cause(annotations: Reader) -> Cause:
    value = annotations.given.get(ANNOTATION_CAUSE)
    text = None if value is None else CAUSE_TEXT.read(value, annotations, ANNOTATION_CAUSE)
    if not text:
        return Cause()
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    by = get_args(By)
    parts = value if isinstance(value, dict) else {}
    texts = all(isinstance(part, str) for part in parts.values())
    if not texts or parts.get("by") not in by or not set(parts) <= set(CAUSE):
        annotations.refuse(ANNOTATION_CAUSE, f'must be JSON as in {{"by": "user"}}, by one of {", ".join(by)}')
        return Cause()
    return Cause(**parts)
