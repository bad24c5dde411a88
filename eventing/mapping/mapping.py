"""Maps foreign events to changes of Models by the mapping of an EventSource. Pure.

A mapping is compiled once for each version of the EventSource. An event that matches no rule is ignored with a reason.
An event that matches a rule but has an invalid value is refused, like an invalid event of Knodel's own type.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from fnmatch import fnmatchcase
from http import HTTPStatus
from typing import Any, Final, NamedTuple

import msgspec

from clusters.base.errors import FieldError, Invalid
from clusters.base.redact import quoted
from clusters.net.cloudevents import LONGEST, BadEvent, Event, decode_json
from eventing.mapping.paths import BadPath, Path
from eventing.mapping.spec import MOST, Condition, MappingSpec, read_rules
from eventing.mapping.templates import Alternatives, Template
from eventing.mapping.training import read_training
from eventing.objects.ports import Mapped, ModelChange, ModelRef

PATH: Final = "spec.mapping"
IGNORED: Final = "ignored/"
"""Prefix of the ids of ignored events: all updates of a job have its uid, and the last one is not ignored."""
MOST_VALUES: Final = 20_000
"""Maximum number of values in the data of a foreign event: a job has hundreds, and a filter may visit each of them."""
_REQUIRED: Final = ("model", "storageUri")
REQUIRED: Final = "it is required without a preset that sets it"
_WHAT: Final = "the mapped event"


class CompiledMapping:
    """`ports.Translation`: the rules of a mapping, of which the first that matches an event is applied."""

    def __init__(self, rules: Sequence[_Rule], preset: str) -> None:
        """`rules`: at least one; `preset`: the name of their preset, empty for none."""
        self._rules = rules
        self.preset = preset

    def map(self, event: Event, namespace: str) -> Mapped:
        """Return the meaning of `event` for an EventSource in `namespace`. Raises BadEvent (400, 413)."""
        _check_size(event.data)
        document = document_of(event)
        mismatches: list[tuple[_Mismatch, _Rule]] = []
        try:
            for rule in self._rules:
                mismatch = rule.mismatch(document)
                if mismatch is None:
                    return rule.mapped(event, document, namespace)
                mismatches.append((mismatch, rule))
            mismatch, rule = max(mismatches, key=lambda one: one[0].matched)
            return rule.ignored(event, document, mismatch.reason)
        except BadPath as error:
            raise BadEvent(HTTPStatus.BAD_REQUEST, f"{_WHAT}: {error}") from error


def compile_mapping(mapping: Mapping[str, Any]) -> CompiledMapping:
    """Compile a mapping. Raises Invalid, which lists every fault."""
    try:
        specs = read_rules(mapping)
    except (msgspec.ValidationError, ValueError) as error:
        raise Invalid("mapping", [FieldError(PATH, str(error))]) from error
    faults: list[FieldError] = []
    rules = [_compiled(spec, faults) for spec in specs]
    if faults:
        raise Invalid("mapping", list(dict.fromkeys(faults)))
    return CompiledMapping(rules, str(mapping.get("preset") or ""))


def mapping_faults(mapping: Mapping[str, Any]) -> Sequence[FieldError]:
    """Return the faults of a mapping, for the validation of EventSources."""
    try:
        compile_mapping(mapping)
    except Invalid as error:
        return error.causes
    return ()


def document_of(event: Event) -> Mapping[str, Any]:
    """Return the document that paths select from: the attributes by name, and `data`."""
    given = {
        "id": event.id,
        "source": event.source,
        "type": event.type,
        "time": event.time.isoformat() if event.time else None,
        "subject": event.subject or None,
    }
    data = None if isinstance(event.data, bytes) else event.data
    return {**event.extensions, **{name: value for name, value in given.items() if value is not None}, "data": data}


class _Mismatch(NamedTuple):
    """Why a rule does not match an event; `matched`: how many of its conditions do."""

    matched: int
    reason: str


class _Rule:
    """A compiled rule: types and conditions that must match, and templates for the values."""

    def __init__(
        self,
        spec: MappingSpec,
        conditions: Sequence[tuple[Path, str]],
        templates: Mapping[str, Alternatives],
    ) -> None:
        self._types = spec.types
        self._source = spec.source
        self._conditions = conditions
        self._templates = templates

    def mismatch(self, document: Mapping[str, Any]) -> _Mismatch | None:
        """Return why the rule does not match the event, None if it does. Raises BadPath."""
        found = document["type"]
        if self._types and not any(fnmatchcase(found, pattern) for pattern in self._types):
            return _Mismatch(0, f"no mapping rule matches event type {quoted(found)}")
        for matched, (path, otherwise) in enumerate(self._conditions, start=1):
            if not path.selects(document):
                return _Mismatch(matched, otherwise or f"{path.text} selects nothing")
        for name in _REQUIRED:
            if self._templates[name].text(document) is None:
                return _Mismatch(1 + len(self._conditions), f"it has no {name}")
        return None

    def mapped(self, event: Event, document: Mapping[str, Any], namespace: str) -> Mapped:
        """Return the change that the event describes. Raises BadEvent, BadPath."""
        texts = {name: template.text(document) for name, template in self._templates.items() if name != "metrics"}
        given = {name: text for name, text in texts.items() if text is not None and name not in ("id", "time")}
        metrics = self._templates["metrics"].value(document) if "metrics" in self._templates else None
        if isinstance(metrics, str):  # as in an annotation
            metrics = decode_json(metrics.encode())
        training = read_training({**given, "metrics": metrics}, _WHAT)
        mapped_id = texts.get("id", event.id)
        if not mapped_id or (
            "id" in texts and (len(mapped_id) > LONGEST - len(IGNORED) or not mapped_id.isprintable())
        ):
            raise BadEvent(HTTPStatus.BAD_REQUEST, f"{_WHAT} has an invalid id: {quoted(mapped_id)}")
        return Mapped(
            mapped_id,
            self._source or event.source,
            _time(texts.get("time")) or event.time,
            model=ModelRef(training.namespace or namespace, training.model),
            change=ModelChange(
                training.storage_uri, training.digest or "", training.version or "", training.model_format or ""
            ),
            metrics=training.metrics or {},
        )

    def ignored(self, event: Event, document: Mapping[str, Any], reason: str) -> Mapped:
        """Return an event without effect. Events with the same mapped id are recorded once for each reason."""
        found = self._templates["id"].partial(document) if "id" in self._templates else ""
        name = f"{found}/{reason}" if found and found.isprintable() else event.id
        return Mapped(f"{IGNORED}{name}"[:LONGEST], self._source or event.source, event.time, ignored=reason)


def _compiled(spec: MappingSpec, faults: list[FieldError]) -> _Rule:
    """Compile a rule; add its faults to `faults`. The rule is only usable without any."""
    given = spec.templates()
    templates: dict[str, Alternatives] = {}
    conditions: list[tuple[Path, str]] = []
    faults += [FieldError(f"{PATH}.{name}", REQUIRED) for name in _REQUIRED if name not in given]
    for name, texts in given.items():
        with _collecting(faults, name):
            templates[name] = Alternatives(texts)
    for one in spec.when:
        condition = one if isinstance(one, Condition) else Condition(one)
        with _collecting(faults, "when"):
            conditions.append((Path(condition.path), condition.otherwise))
    with _collecting(faults, "source"):
        # A source made from an event would let one sender use the ids of another's changes.
        if spec.source and not Template(spec.source).is_constant:
            raise BadPath("it must be a constant text without paths")
        if not spec.source.isprintable() or " " in spec.source:
            raise BadPath(f"{spec.source!r} is not a URI reference")
    for name, items in (("when", spec.when), ("types", spec.types)):
        if len(items) > MOST:
            faults.append(FieldError(f"{PATH}.{name}", f"it has {len(items)} items, but at most {MOST} are allowed"))
    return _Rule(spec, conditions, templates)


@contextmanager
def _collecting(faults: list[FieldError], name: str) -> Iterator[None]:
    try:
        yield
    except BadPath as error:
        faults.append(FieldError(f"{PATH}.{name}", str(error)))


def _check_size(data: Any) -> None:
    """Limit the number of values in the data, because a tenant's slow paths must not delay others. Raises BadEvent."""
    queue, seen = [data], 0
    while queue:
        value = queue.pop()
        inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        seen += len(inner)
        if seen > MOST_VALUES:
            message = f"the data has more than {MOST_VALUES} values, the maximum for a mapping"
            raise BadEvent(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, message)
        queue.extend(one for one in inner if isinstance(one, (dict, list)))


def _time(text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        at = None
    if at is None or at.tzinfo is None:
        raise BadEvent(HTTPStatus.BAD_REQUEST, f"{_WHAT}: time {quoted(text)} is not an RFC 3339 time")
    return at
