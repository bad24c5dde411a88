"""Foreign events as changes of Models, as the mapping of an EventSource says. Pure.

A mapping is compiled when the EventSource is read, once for each change of it. An event that it has nothing to say of
is ignored with the reason; one that it does speak of, with a value that is none, is refused as our own would be.
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
from eventing.errors import BadEvent, shown
from eventing.mapping.paths import BadPath, Path
from eventing.mapping.spec import MOST, Condition, MappingSpec, read_rules
from eventing.mapping.templates import Alternatives, Template
from eventing.mapping.training import read_training
from eventing.objects.attributes import LONGEST
from eventing.objects.event import Event
from eventing.objects.json_body import decode_json
from eventing.objects.ports import Change, Mapped, ModelRef

PATH: Final = "spec.mapping"
IGNORED: Final = "ignored/"
"""How the ids of ignored events begin, so that none is that of an effect: a job's updates all have the job's uid."""
MOST_VALUES: Final = 20_000
"""In the data of a foreign event: a job has some hundred, and a filter may look at each of them."""
_REQUIRED: Final = ("model", "storageUri")
REQUIRED: Final = "it is required, unless a preset has it"


class CompiledMapping:
    """`ports.Translation`: the rules of a mapping; the first that speaks of an event is taken."""

    def __init__(self, rules: Sequence[_Rule], preset: str) -> None:
        """`rules`: one at least; `preset`: whose they are, empty for none."""
        self._rules = rules
        self.preset = preset

    def map(self, event: Event, namespace: str) -> Mapped:
        """What `event` means to an EventSource in `namespace`. Raises BadEvent (400, 413)."""
        _check_size(event.data)
        try:
            return self._mapped(event, document_of(event), namespace)
        except BadPath as error:
            raise BadEvent(HTTPStatus.BAD_REQUEST, f"the event as it is mapped: {error}") from error

    def _mapped(self, event: Event, document: Mapping[str, Any], namespace: str) -> Mapped:
        """Raises BadEvent, BadPath."""
        refusals: list[tuple[_Refusal, _Rule]] = []
        for rule in self._rules:
            refusal = rule.refusal(document)
            if refusal is None:
                return rule.mapped(event, document, namespace)
            refusals.append((refusal, rule))
        refusal, rule = max(refusals, key=lambda one: one[0].held)
        return rule.ignored(event, document, refusal.reason)


def compile_mapping(mapping: Mapping[str, Any]) -> CompiledMapping:
    """The compiled mapping. Raises Invalid, which names every fault."""
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
    """What is wrong with a mapping, for whoever validates EventSources."""
    try:
        compile_mapping(mapping)
    except Invalid as error:
        return error.causes
    return ()


def document_of(event: Event) -> Mapping[str, Any]:
    """What paths look at: the attributes by their names, and `data`."""
    given = {
        "id": event.id,
        "source": event.source,
        "type": event.type,
        "time": event.time.isoformat() if event.time else None,
        "subject": event.subject or None,
    }
    data = None if isinstance(event.data, bytes) else event.data
    return {**event.extensions, **{name: value for name, value in given.items() if value is not None}, "data": data}


class _Refusal(NamedTuple):
    """Why a rule does not speak of an event; `held`: how much of it does."""

    held: int
    reason: str


class _Rule:
    """One rule: types and conditions that have to hold, and where each value comes from."""

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

    def refusal(self, document: Mapping[str, Any]) -> _Refusal | None:
        """Why it does not speak of this event; None when it does."""
        found = document["type"]
        if self._types and not any(fnmatchcase(found, pattern) for pattern in self._types):
            return _Refusal(0, f"the type {shown(found)} means nothing here")
        for held, (path, otherwise) in enumerate(self._conditions, start=1):
            if not path.selects(document):
                return _Refusal(held, otherwise or f"nothing is at {path.text}")
        for name in _REQUIRED:
            if self._templates[name].text(document) is None:
                return _Refusal(1 + len(self._conditions), f"it has no {name}")
        return None

    def mapped(self, event: Event, document: Mapping[str, Any], namespace: str) -> Mapped:
        """The change that it asks for. Raises BadEvent."""
        texts = {name: template.text(document) for name, template in self._templates.items() if name != "metrics"}
        given = {name: text for name, text in texts.items() if text is not None and name not in ("id", "time")}
        metrics = self._metrics(document)
        training = read_training({**given, "metrics": metrics}, "the event as it is mapped")
        return Mapped(
            _checked_id(texts["id"]) if "id" in texts else event.id,
            self._source or event.source,
            _time(texts.get("time")) or event.time,
            model=ModelRef(training.namespace or namespace, training.model),
            change=Change(
                training.storage_uri, training.digest or "", training.version or "", training.model_format or ""
            ),
            metrics=training.metrics or {},
        )

    def ignored(self, event: Event, document: Mapping[str, Any], reason: str) -> Mapped:
        """It means nothing; what has the same id so far is recorded once for each reason."""
        found = self._templates["id"].partial(document) if "id" in self._templates else ""
        name = f"{found}/{reason}" if found and found.isprintable() else event.id
        return Mapped(f"{IGNORED}{name}"[:LONGEST], self._source or event.source, event.time, ignored=reason)

    def _metrics(self, document: Mapping[str, Any]) -> Any:
        """An object, or a text that is one in JSON, as annotations are."""
        value = self._templates["metrics"].value(document) if "metrics" in self._templates else None
        return decode_json(value.encode()) if isinstance(value, str) else value


def _compiled(spec: MappingSpec, faults: list[FieldError]) -> _Rule:
    """Adds what is wrong to `faults`; the rule is of use when there is nothing."""
    given = spec.templates()
    templates: dict[str, Alternatives] = {}
    conditions: list[tuple[Path, str]] = []
    faults += [FieldError(f"{PATH}.{name}", REQUIRED) for name in _REQUIRED if name not in given]
    for name, texts in given.items():
        with _noting(faults, name):
            templates[name] = Alternatives(texts)
    for one in spec.when:
        condition = one if isinstance(one, Condition) else Condition(one)
        with _noting(faults, "when"):
            conditions.append((Path(condition.path), condition.otherwise))
    with _noting(faults, "source"):
        _check_source(spec.source)
    for name, items in (("when", spec.when), ("types", spec.types)):
        if len(items) > MOST:
            faults.append(FieldError(f"{PATH}.{name}", f"it has {len(items)} items: at most {MOST} are allowed"))
    return _Rule(spec, conditions, templates)


@contextmanager
def _noting(faults: list[FieldError], name: str) -> Iterator[None]:
    try:
        yield
    except BadPath as error:
        faults.append(FieldError(f"{PATH}.{name}", str(error)))


def _check_source(source: str) -> None:
    """Were it made of an event, one sender could take the ids of another's effects. Raises BadPath."""
    if source and not Template(source).is_constant:
        raise BadPath("it is the same for all events: a text without paths")
    if not source.isprintable() or " " in source:
        raise BadPath(f"{source!r} is no URI reference")


def _check_size(data: Any) -> None:
    """Raises BadEvent: who writes slow paths, and who sends much to them, may be strangers to all others here."""
    waiting, seen = [data], 0
    while waiting:
        value = waiting.pop()
        inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        seen += len(inner)
        if seen > MOST_VALUES:
            message = f"the data have more than {MOST_VALUES} values: too many for a mapping"
            raise BadEvent(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, message)
        waiting.extend(one for one in inner if isinstance(one, (dict, list)))


def _checked_id(id: str | None) -> str:
    if not id or len(id) > LONGEST - len(IGNORED) or not id.isprintable():
        raise BadEvent(HTTPStatus.BAD_REQUEST, f"the event as it is mapped has no id that is one: {shown(id)}")
    return id


def _time(text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        at = None
    if at is None or at.tzinfo is None:
        raise BadEvent(HTTPStatus.BAD_REQUEST, f"the event as it is mapped: time {shown(text)} is no RFC 3339 time")
    return at
