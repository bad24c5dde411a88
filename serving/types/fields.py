"""The kinds of fields with one value: each reads the value from a manifest, and has an OpenAPI schema. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

from clusters.base import durations, quantities
from clusters.base.durations import format_duration, parse_duration
from clusters.base.quantities import canonical_quantity, parse_quantity
from serving.types.reader import LONGEST_SHOWN, Fault, Reader, short_repr
from serving.types.schema import INT_OR_STRING, Schema, matches, message_of, quoted, rule, ruled


@dataclass(frozen=True)
class Format:
    """The syntax of a text: its check in Python, and the same check as bounds and CEL rules.

    Descriptions and the message for an absent text have the `example`. Editors get `choices`, or else `pattern`.
    """

    fault: Fault
    longest: int
    rules: tuple[Schema, ...] = ()
    _: KW_ONLY
    least: int | None = None
    example: str = ""
    choices: tuple[str, ...] = ()
    pattern: str = ""


@dataclass(frozen=True)
class Field:
    """One field: its description here, its kind with bounds in the classes below.

    `note` follows the default in the description. The table sets `default`, as in manifests, and `required`.
    """

    about: str
    _: KW_ONLY
    name: str = ""
    note: str = ""
    default: Any = None
    required: bool = False
    zero: ClassVar[Any] = ""
    """The value of a required field that is absent or refused."""

    def read(self, value: Any, at: Reader, name: str) -> Any:
        """Return the typed value; None, with a fault added, if it is refused. `value` is not null."""
        raise NotImplementedError

    def schema(self) -> Schema:
        """Return the structural OpenAPI schema, without description."""
        raise NotImplementedError

    def expected(self) -> str:
        """Return what a value must be, without "must be"."""
        return ""

    def bounds(self) -> str:
        """Return the bounds as a sentence; empty without bounds."""
        return ""

    def written(self, default: Any) -> Any:
        """Return a default as manifests have it; None if absence has no equivalent."""
        return None if default == "" else default

    def description(self) -> str:
        """Return the description with bounds and default."""
        default = self.default_text() and f"Default: {self.default_text()}."
        return " ".join(filter(None, (self.about, self.bounds(), default)))

    def default_text(self) -> str:
        """Return the default as descriptions show it; empty without a default."""
        if self.default is None:
            return ""
        values = self.default if isinstance(self.default, list) else [self.default]
        return ", ".join(str(one).lower() if isinstance(one, bool) else str(one) for one in values) + self.note


@dataclass(frozen=True)
class Text(Field):
    """A text."""

    format: Format

    def read(self, value: Any, at: Reader, name: str) -> str | None:
        if not isinstance(value, str):
            hint = f": put it in quotes, as in {name}: {str(value)!r}" if isinstance(value, int | float) else ""
            at.refuse(name, f"must be a text, not {short_repr(value)}{hint if len(hint) < LONGEST_SHOWN else ''}")
            return None
        if fault := self.format.fault(value):
            at.refuse(name, fault)
            return None
        return value

    def schema(self) -> Schema:
        least = {} if self.format.least is None else {"minLength": self.format.least}
        return ruled({"type": "string", "maxLength": self.format.longest, **least}, self.format.rules)

    def expected(self) -> str:
        return self.format.example and f"a text such as {self.format.example}"

    def bounds(self) -> str:
        return self.format.example and f"Example: {self.format.example}."


@dataclass(frozen=True)
class Texts(Field):
    """A mapping of at most `most` names, with the format `keys`, to texts, read as pairs sorted by name."""

    keys: Format
    values: Format
    most: int
    zero = ()

    def read(self, value: Any, at: Reader, name: str) -> tuple[tuple[str, str], ...] | None:
        if not isinstance(value, Mapping) or len(value) > self.most:
            given = f"{len(value)} entries" if isinstance(value, Mapping) else short_repr(value)
            at.refuse(name, f"must be {self.expected()}, not {given}")
            return None
        faults, read = len(at.errors), Text("", self.values).read
        for key, text in value.items():
            if fault := self.keys.fault(key) if isinstance(key, str) else f"must have texts as names, not {key!r}":
                at.refuse(name, fault)
            else:
                read(text, at, f"{name}.{key}")
        return None if len(at.errors) > faults else tuple(sorted(value.items()))

    def schema(self) -> Schema:
        keys = [
            rule(f"self.all(name, {one['rule'].replace('self', 'name')})", one["message"]) for one in self.keys.rules
        ]
        text = Text("Value of the entry.", self.values)
        values = {**text.schema(), "description": text.description()}
        return ruled({"type": "object", "maxProperties": self.most, "additionalProperties": values}, keys)

    def expected(self) -> str:
        return f"a mapping of at most {self.most} names to texts"

    def bounds(self) -> str:
        return f"At most {self.most} entries."

    def written(self, default: Any) -> Any:
        return dict(default) or None


@dataclass(frozen=True)
class Flag(Field):
    """True or false."""

    def read(self, value: Any, at: Reader, name: str) -> bool | None:
        if not isinstance(value, bool):
            at.refuse(name, f"must be true or false, not {short_repr(value)}")
            return None
        return value

    def schema(self) -> Schema:
        return {"type": "boolean"}


@dataclass(frozen=True)
class Integer(Field):
    """A whole number. As in Kubernetes, 2.0 is not one."""

    least: int
    most: int
    zero = 0

    def read(self, value: Any, at: Reader, name: str) -> int | None:
        if isinstance(value, bool) or not isinstance(value, int) or not self.least <= value <= self.most:
            at.refuse(name, f"must be {self.expected()}, not {short_repr(value)}")
            return None
        return value

    def schema(self) -> Schema:
        return {"type": "integer", "format": "int32", "minimum": self.least, "maximum": self.most}

    def expected(self) -> str:
        return f"a whole number from {self.least} to {self.most}"

    def bounds(self) -> str:
        return f"From {self.least} to {self.most}."


@dataclass(frozen=True)
class Number(Field):
    """A finite number."""

    least: float
    most: float
    zero = 0.0

    def read(self, value: Any, at: Reader, name: str) -> float | None:
        usable = isinstance(value, int | float) and not isinstance(value, bool)
        if not usable or not self.least <= value <= self.most:  # NaN fails this comparison
            at.refuse(name, f"must be {self.expected()}, not {short_repr(value)}")
            return None
        return float(value)

    def schema(self) -> Schema:
        """Return the schema. A rule repeats `minimum`: the API server compares 0 with its integer part."""
        bounds = {"type": "number", "format": "double", "minimum": self.least, "maximum": self.most}
        return ruled(bounds, [rule(f"self >= {self.least}", f"must be at least {self.least:g}")])

    def expected(self) -> str:
        return f"a number from {self.least:g} to {self.most:g}"

    def bounds(self) -> str:
        return f"From {self.least:g} to {self.most:g}."

    def written(self, default: Any) -> Any:
        return int(default) if default == int(default) else default


@dataclass(frozen=True)
class Duration(Field):
    """A duration such as `10m`, read as seconds. `whole`: only whole seconds, as in some fields of Knative.

    `word` is a text that may replace a duration, with its value.
    """

    least: float
    most: float
    whole: bool = False
    word: tuple[str, float] = ("", 0.0)
    zero = 0.0

    def read(self, value: Any, at: Reader, name: str) -> float | None:
        if self.word[0] and value == self.word[0]:
            return self.word[1]
        try:
            if not isinstance(value, str):
                raise ValueError("must be a text such as '300s', '10m' or '1h30m'")
            seconds = parse_duration(value)
            if not self.least <= seconds <= self.most:
                raise ValueError(self._within())
            if self.whole and seconds != int(seconds):
                raise ValueError("must be in whole seconds")
        except ValueError as error:
            at.refuse(name, f"{error}, not {short_repr(value)}")
            return None
        return seconds

    def schema(self) -> Schema:
        syntax = matches(durations.DURATION.pattern)
        low, high = (f"duration({quoted(format_duration(bound))})" for bound in (self.least, self.most))
        word = f"self == {quoted(self.word[0])} || " if self.word[0] else ""
        rules = [
            rule(f"{word}{syntax}", f"must be {self.expected()}"),
            rule(f"!{syntax} || (duration(self) >= {low} && duration(self) <= {high})", self._within()),
        ]
        if self.whole:
            whole = "timestamp(0) + duration(self) == timestamp(duration(self).getSeconds())"
            rules.append(rule(f"!{syntax} || {whole}", "must be in whole seconds"))
        return ruled({"type": "string", "maxLength": durations.LONGEST_TEXT}, rules)

    def expected(self) -> str:
        return "a duration such as 300s, 10m or 1h30m"

    def bounds(self) -> str:
        whole = ", in whole seconds" if self.whole else ""
        return f"From {format_duration(self.least)} to {format_duration(self.most)}{whole}."

    def written(self, default: Any) -> Any:
        if self.word[0] and default == self.word[1]:
            return self.word[0]
        return format_duration(default) if default else None

    def _within(self) -> str:
        return f"must be at least {format_duration(self.least)} and at most {format_duration(self.most)}"


@dataclass(frozen=True)
class Quantity(Field):
    """A quantity above zero as a text or a whole number, read in its canonical form."""

    def read(self, value: Any, at: Reader, name: str) -> str | None:
        if isinstance(value, int | float) and not isinstance(value, bool):
            value = str(value)  # Kubernetes accepts `cpu: 1` as well
        fault = quantity_fault(value) if isinstance(value, str) else f"must be a quantity, not {short_repr(value)}"
        if fault:
            at.refuse(name, fault)
            return None
        return canonical_quantity(value)

    def schema(self) -> Schema:
        syntax = matches(quantities.QUANTITY.pattern)
        number = f"!{syntax} || quantity(self).isGreaterThan(quantity('0'))"
        rules = [
            rule(f"type(self) != string || {syntax}", message_of(quantity_fault, "-")),
            rule(f"type(self) == string ? ({number}) : self > 0", message_of(quantity_fault, "0")),
        ]
        return ruled({INT_OR_STRING: True, "maxLength": quantities.LONGEST_TEXT}, rules)


def quantity_fault(quantity: str) -> str:
    """Return the fault of a quantity, which must be above 0; empty for a valid one."""
    try:
        return "" if parse_quantity(quantity) > 0 else f"must be more than 0, not {short_repr(quantity)}"
    except ValueError as error:
        return f"{error}, not {short_repr(quantity)}"
