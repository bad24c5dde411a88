"""Declare the fields of Knodel's kinds, each once: a class for a mapping, an annotated attribute for a field. Pure.

    @dataclass(frozen=True, slots=True)
    class Batching:
        '''Adaptive batching of requests. If absent, each request is a batch of its own.'''

        max_batch_size: Annotated[int, Integer("Maximum number of rows in a batch.", 2, 4096)] = 16
        max_latency: Annotated[float, Duration("Maximum time to wait for a batch to fill.", 0.0001, 1.0)] = 0.002

Such classes are the table of fields. `read` makes a value of the class from a manifest, with every fault and its path.
`Field.schema` makes the OpenAPI schema, from which `serving.crds` makes the CustomResourceDefinitions, the JSON schema
for editors and the reference page.

- The name in manifests is the attribute's in camelCase (`maxBatchSize`), or the `name` of the field.
- A field without a default is required. A field that is null counts as absent, as in Kubernetes.
- The first paragraph of the class's docstring describes the mapping.
- `RULES` of a class are CEL rules for several fields. Its method `faults(given)` makes the same checks in Python, and
  yields the name of each refused field with the message; `given` is the mapping as written.
- `LATER` of a class has fields of later releases, which are refused, never ignored.
- `complete(values)` of a class sets defaults that depend on other fields in `values`, the valid ones by attribute.

The schema sets no defaults: the stored object keeps what its author wrote, and defaults are applied when it is read. An
upgrade may change a default for every object that does not set the field, and a field that nobody set must have no
owner in server-side apply. The descriptions give the defaults.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Final, NamedTuple, TypeVar, get_type_hints

from serving.types.fields import Field
from serving.types.reader import Reader, short_repr
from serving.types.schema import LIST_TYPE, Schema, opaque, record, rule, ruled

T = TypeVar("T")

INLINE: Final = "inline"
"""Annotation of an attribute whose class declares fields of the same mapping."""


@dataclass(frozen=True)
class Items(Field):
    """A list of 1 to `most` items. `rules` are CEL rules; `faults` makes the same checks of the read items."""

    item: Field
    most: int
    rules: tuple[Schema, ...] = ()
    faults: Callable[[list[Any]], Iterable[str]] = lambda _: ()
    zero = ()

    def read(self, value: Any, at: Reader, name: str) -> tuple[Any, ...] | None:
        if not isinstance(value, list) or not 1 <= len(value) <= self.most:
            given = f"{len(value)} entries" if isinstance(value, list) else short_repr(value)
            remedy = "" if self.required else ": omit it to have none"
            at.refuse(name, f"must be {self.expected()}, not {given}{remedy}")
            return None
        items, known_errors = [], len(at.errors)
        for index, entry in enumerate(value):
            path = f"{name}[{index}]"
            item = None
            if entry is None:
                at.refuse(path, f"must be {self.item.expected() or 'a text'}, not {short_repr(entry)}")
            else:
                item = self.item.read(entry, at, path)
            items.append(item)
        if len(at.errors) > known_errors:  # refused fields of the items have their defaults
            return None
        faults = list(self.faults(items))
        for fault in faults:
            at.refuse(name, fault)
        return None if faults else tuple(items)

    def schema(self) -> Schema:
        bounds = {"type": "array", "minItems": 1, "maxItems": self.most, LIST_TYPE: "atomic"}
        return ruled({**bounds, "items": described(self.item)}, self.rules)

    def expected(self) -> str:
        return f"a list of 1 to {self.most} entries"

    def bounds(self) -> str:
        return f"At most {self.most} entries."

    def written(self, default: Any) -> Any:
        return list(default) or None


@dataclass(frozen=True)
class Nested(Field):
    """A mapping with the fields of `table`. `unwrap` turns its value into that of the attribute."""

    table: type
    unwrap: Callable[[Any], Any] | None = None

    def read(self, value: Any, at: Reader, name: str) -> Any:
        if not isinstance(value, Mapping):
            at.refuse(name, f"must be a mapping, not {short_repr(value)}")
            return None
        made: Any = read(self.table, Reader(value, at.at(name), at.errors))
        return self.unwrap(made) if self.unwrap is not None else made

    def schema(self) -> Schema:
        fields = table_of(self.table)
        later = getattr(self.table, "LATER", {})
        properties = {
            name: {**described(one), **({} if one.required else {"nullable": True})}
            for name, one in {**fields, **later}.items()
        }
        required = [name for name, one in fields.items() if one.required]
        rules = [one for table in (self.table, *_shape(self.table).inlined.values()) for one in _rules(table)]
        return ruled(record("", properties, required), rules)

    def expected(self) -> str:
        needed = [name for name, one in table_of(self.table).items() if one.required]
        return f"a mapping with {', '.join(needed)}" if needed else "a mapping"

    def empty(self) -> Any:
        """Return the value without any field, also if some are required."""
        return self.read({}, Reader({}, "", []), "")

    def written(self, default: Any) -> Any:
        return None

    def description(self) -> str:
        return self.about or " ".join((self.table.__doc__ or "").partition("\n\n")[0].split())


@dataclass(frozen=True)
class Later(Field):
    """A field of a later release. The schema has it, so that it is not pruned silently; `like` is its type."""

    like: Mapping[str, Any] = dataclasses.field(default_factory=opaque)

    def read(self, value: Any, at: Reader, name: str) -> None:
        at.refuse(name, self.fault())

    def fault(self) -> str:
        """Return the message."""
        return f"not supported yet: {self.about}"

    def schema(self) -> Schema:
        return dict(self.like)

    def description(self) -> str:
        return f"Not supported yet: {self.about}."


class _Entry(NamedTuple):
    attribute: str
    inline: str
    field: Field


@dataclass(frozen=True, slots=True)
class _Shape:
    """What `read` needs of a class. `inlined` has the classes of attributes whose fields are in the same mapping."""

    make: Callable[..., Any]
    entries: dict[str, _Entry]
    required: tuple[str, ...]
    inlined: dict[str, type]
    zeros: dict[str, Any]
    complete: Callable[[dict[str, Any]], None] | None
    has_faults: bool


def described(field: Field) -> Schema:
    """Return the schema of a field with its description."""
    return {**field.schema(), "description": field.description()}


def table_of(cls: type) -> dict[str, Field]:
    """Return the fields of a class by their names in manifests, with `default` and `required`."""
    return {name: entry.field for name, entry in _shape(cls).entries.items() if entry.attribute}


def read(cls: Callable[..., T], at: Reader) -> T:
    """Read a mapping into an instance of `cls`. Faults are added to the reader's errors.

    Refused fields have their defaults, so that reading continues; the instance is valid if no fault was added.
    """
    shape = _shape(cls)
    values: dict[str, Any] = {}
    inlined: dict[str, dict[str, Any]] = {name: {} for name in shape.inlined}
    for name, value in at.given.items():
        if value is None:
            continue
        entry = shape.entries.get(name)
        if entry is None:
            at.refuse_unknown(name, shape.entries)
        elif (found := entry.field.read(value, at, name)) is not None:
            (inlined[entry.inline] if entry.inline else values)[entry.attribute] = found
    for name in shape.required:
        if at.given.get(name) is None:
            expected = shape.entries[name].field.expected()
            at.refuse(name, f"is required{expected and f': {expected}'}")
    for name, part in shape.inlined.items():
        values[name] = _make(_shape(part), inlined[name], at)
    made: T = _make(shape, values, at)
    return made


def _make(shape: _Shape, values: dict[str, Any], at: Reader) -> Any:
    if shape.complete is not None:
        shape.complete(values)
    made = shape.make(**(shape.zeros | values if shape.zeros else values))
    if shape.has_faults:
        for name, message in made.faults(at.given):
            at.refuse(name, message)
    return made


@cache
def _shape(cls: Any) -> _Shape:
    hints = get_type_hints(cls, include_extras=True)
    entries: dict[str, _Entry] = {}
    inlined: dict[str, type] = {}
    zeros: dict[str, Any] = {}
    for one in dataclasses.fields(cls):
        hint = hints[one.name]
        if hint.__metadata__ == (INLINE,):
            inlined[one.name] = hint.__origin__
            entries |= {
                name: entry._replace(inline=one.name) for name, entry in _shape(hint.__origin__).entries.items()
            }
            continue
        [field] = hint.__metadata__
        first, *others = one.name.split("_")
        name = field.name or first + "".join(map(str.capitalize, others))
        required = one.default is dataclasses.MISSING and one.default_factory is dataclasses.MISSING
        if required:
            zeros[one.name] = field.empty() if isinstance(field, Nested) else field.zero
        default = None if one.default in (None, dataclasses.MISSING) else field.written(one.default)
        entries[name] = _Entry(one.name, "", replace(field, default=default, required=required))
    needed = tuple(name for name, entry in entries.items() if entry.field.required)
    entries |= {name: _Entry("", "", later) for name, later in getattr(cls, "LATER", {}).items()}
    return _Shape(cls, entries, needed, inlined, zeros, getattr(cls, "complete", None), hasattr(cls, "faults"))


def _rules(table: type) -> Iterator[Schema]:
    """Return the CEL rules of a class: its own, and one for each field of a later release."""
    yield from getattr(table, "RULES", ())
    for name, later in getattr(table, "LATER", {}).items():
        yield rule(f"!has(self.{name})", later.fault(), f".{name}")
