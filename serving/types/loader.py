"""Load objects from YAML and JSON text, for the command, the control API and the settings.

The loader is safe and accepts only features of YAML that JSON has: no tags, no dates, no duplicate keys, few aliases.
Every fault is a `LoadError` with the file, the line and the remedy.
"""

from __future__ import annotations

import json
import math
from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import Any

import yaml
from yaml.composer import Composer
from yaml.constructor import SafeConstructor
from yaml.cyaml import CParser  # type: ignore[attr-defined]
from yaml.resolver import Resolver

from clusters.base.errors import KnodelError
from clusters.base.objects import KINDS, MODEL, Kind, Object
from clusters.base.redact import one_line
from clusters.base.sizes import format_size
from serving.types.input_files import open_input

LARGEST_TEXT = 3 * 1024 * 1024
"""Bytes of one file: the request limit of kube-apiserver."""
MOST_ALIASES = 100
"""Aliases in one file. Usual files have a few."""
MOST_VALUES = 100_000
"""Values of one document with all repetitions by aliases: eight levels of eight aliases have 16 million."""
DEEPEST = 64
"""Levels of nesting. A Model has six."""

_TAG_PREFIX = "tag:yaml.org,2002:"
_JSON_TAGS = frozenset(f"{_TAG_PREFIX}{name}" for name in ("null", "bool", "int", "float", "str", "seq", "map"))


class LoadError(KnodelError):
    """The text is not YAML or JSON, or has features that are not accepted."""


class _Loader(Composer, CParser, SafeConstructor, Resolver):
    """A safe loader that limits aliases and depth, and refuses duplicate keys and values that JSON does not have.

    libyaml parses the text and reports positions. Nodes and values are made in Python, where they can be counted.
    """

    # Dates are text, as in JSON, so that `version: 2026-01-01` keeps its spelling.
    yaml_implicit_resolvers = {  # noqa: RUF012 - the base class declares it so
        first: [(tag, pattern) for tag, pattern in resolvers if tag != f"{_TAG_PREFIX}timestamp"]
        for first, resolvers in Resolver.yaml_implicit_resolvers.items()
    }

    def __init__(self, text: str) -> None:
        CParser.__init__(self, text)
        Composer.__init__(self)
        SafeConstructor.__init__(self)
        Resolver.__init__(self)
        self._aliases = 0
        self._depth = 0
        self._open: list[str | None] = []  # anchors of the collections in progress

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        """Compose a mapping. Raises MarkedYAMLError when it contains itself."""
        self._open.append(anchor)
        try:
            return super().compose_mapping_node(anchor)
        finally:
            self._open.pop()

    def compose_sequence_node(self, anchor: Any) -> yaml.SequenceNode:
        """Compose a list. Raises MarkedYAMLError when it contains itself."""
        self._open.append(anchor)
        try:
            return super().compose_sequence_node(anchor)
        finally:
            self._open.pop()

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """Compose a node within the limits. Raises MarkedYAMLError beyond them."""
        if self.check_event(yaml.AliasEvent):
            self._check_alias()
        self._depth += 1
        if self._depth > DEEPEST:
            raise yaml.MarkedYAMLError(problem=f"nested deeper than {DEEPEST} levels", problem_mark=self._mark())
        try:
            return super().compose_node(parent, index)
        finally:
            self._depth -= 1

    def compose_document(self) -> yaml.Node | None:
        """Compose a document. Repetitions by aliases are counted before any value is made."""
        before = self._aliases
        node = super().compose_document()
        if self._aliases > before and node is not None:
            self._weigh(node, 1, {})
        return node

    def _weigh(self, node: yaml.Node, level: int, known: dict[int, tuple[int, int]]) -> tuple[int, int]:
        """Return the values and levels of a node with all repetitions. `known` has those of visited nodes, by id."""
        weight = known.get(id(node))
        if weight is None:
            self._check_weight(node, level, 0)
            children = node.value if isinstance(node, yaml.SequenceNode) else ()
            if isinstance(node, yaml.MappingNode):
                children = [part for pair in node.value for part in pair]
            inner = [self._weigh(one, level + 1, known) for one in children]
            weight = 1 + sum(values for values, _ in inner), 1 + max((levels for _, levels in inner), default=0)
            known[id(node)] = weight
        self._check_weight(node, level + weight[1] - 1, weight[0])
        return weight

    def _check_weight(self, node: yaml.Node, levels: int, values: int) -> None:
        if levels > DEEPEST:
            problem = f"nested deeper than {DEEPEST} levels with the repetitions by aliases"
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark)
        if values > MOST_VALUES:
            problem = f"more than {MOST_VALUES} values with the repetitions by aliases"
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark)

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        """Make the value of a node. Raises MarkedYAMLError for tags, and for numbers that JSON does not have."""
        if node.tag not in _JSON_TAGS:
            problem = f"the tag {node.tag.replace(_TAG_PREFIX, '!!')} is not accepted: write the plain value"
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark)
        value = super().construct_object(node, deep=deep)
        if isinstance(value, float) and not math.isfinite(value):
            raise yaml.MarkedYAMLError(problem=f"{node.value} is not a number in JSON", problem_mark=node.start_mark)
        return value

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        """Make a mapping. Raises MarkedYAMLError for keys that are not text, and for duplicate keys."""
        seen: set[str] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, str):
                problem = f"the key {key!r} is not a text: put it in quotes"
                raise yaml.MarkedYAMLError(problem=problem, problem_mark=key_node.start_mark)
            if key in seen:
                raise yaml.MarkedYAMLError(problem=f"the key {key!r} is given twice", problem_mark=key_node.start_mark)
            seen.add(key)
        return super().construct_mapping(node, deep=deep)

    def _check_alias(self) -> None:
        self._aliases += 1
        if self._aliases > MOST_ALIASES:
            raise yaml.MarkedYAMLError(problem=f"more than {MOST_ALIASES} aliases", problem_mark=self._mark())
        event = self.peek_event()
        if isinstance(event, yaml.AliasEvent) and event.anchor in self._open:
            raise yaml.MarkedYAMLError(problem=f"{event.anchor!r} contains itself", problem_mark=self._mark())

    def _mark(self) -> Any:
        event = self.peek_event()
        return event.start_mark if event is not None else None


def load_documents(text: str, source: str = "the text") -> list[Any]:
    """Return every non-empty document of a YAML stream, or a JSON value. Raises LoadError."""
    _check_size(len(text.encode("utf-8", "surrogatepass")), source)
    loader = _Loader("")
    try:
        loader = _Loader(text)
        documents: list[Any] = []
        while loader.check_data():  # type: ignore[no-untyped-call]
            documents.append(loader.get_data())
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise LoadError(f"{source}: {_explain(error, text)}") from error
    finally:
        loader.dispose()
    return [document for document in documents if document is not None]


def load_objects(text: str, source: str = "the text") -> list[Object]:
    """Return every Kubernetes object of a YAML or JSON text, with the items of a `List`. Raises LoadError."""
    objects: list[Object] = []
    for number, document in enumerate(load_documents(text, source), start=1):
        where = f"{source}, document {number}"
        if isinstance(document, dict) and document.get("kind") == "List" and "items" in document:
            items = document["items"]
            if not isinstance(items, list):
                raise LoadError(f"{where}: items must be a list")
            objects += [_checked(item, f"{where}, items[{index}]") for index, item in enumerate(items)]
        else:
            objects.append(_checked(document, where))
    if not objects:
        raise LoadError(f"{source} contains no object: write a Model (apiVersion {MODEL.api_version})")
    return objects


def load_models(text: str, source: str = "the text", kinds: Sequence[Kind] = (MODEL,)) -> list[Object]:
    """Return the objects of a text that may contain only these kinds. Raises LoadError."""
    objects = load_objects(text, source)
    for obj in objects:
        if not any((obj["apiVersion"], obj["kind"]) == (kind.api_version, kind.kind) for kind in kinds):
            raise LoadError(
                f"{source}: {obj['kind']} ({obj['apiVersion']}) is not accepted here: write a "
                f"{' or a '.join(kind.kind for kind in kinds)} ({MODEL.api_version})"
            )
    return objects


def read_models(path: Path, kinds: Sequence[Kind] = (MODEL,)) -> list[Object]:
    """Return the Models, or objects of these kinds, in a file. Raises LoadError."""
    try:
        with open_input(path) as file:  # the file may be endless
            content = file.read(LARGEST_TEXT + 1)
        _check_size(len(content), str(path))  # before decoding: the cut may be inside a character
        text = content.decode()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise LoadError(f"cannot read {path}: {reason}") from error
    return load_models(text, str(path), kinds)


def _check_size(size: int, source: str) -> None:
    if size > LARGEST_TEXT:
        raise LoadError(f"{source} is larger than {format_size(LARGEST_TEXT)}: split it")


def _checked(value: Any, where: str) -> Object:
    if not isinstance(value, dict):
        raise LoadError(f"{where} is not an object with apiVersion, kind and metadata")
    for field in ("apiVersion", "kind"):
        if not isinstance(value.get(field), str) or not value[field]:
            known = " or ".join(sorted({kind.kind for kind in KINDS if kind.group == MODEL.group}))
            raise LoadError(f"{where}: {field} is missing: write apiVersion {MODEL.api_version} and kind {known}")
    metadata = value.get("metadata")
    if not isinstance(metadata, dict) or not isinstance(metadata.get("name"), str) or not metadata["name"]:
        raise LoadError(f"{where}: metadata.name is missing")
    return value


def _explain(error: Exception, text: str) -> str:
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if isinstance(error, yaml.MarkedYAMLError):
        problem = error.problem or error.context or "it is not YAML"
        mark, began = error.problem_mark or error.context_mark, error.context_mark
        if mark is None:
            return problem
        if mark.index < len(text):  # libyaml does not name the character; usually it is a tab
            problem = problem.replace("found character that", f"found character {text[mark.index]!r} that")
        if began is not None and began.line != mark.line:
            problem += f" ({error.context} that begins in line {began.line + 1})"
        place = f"line {mark.line + 1}, column {mark.column + 1}" if text[mark.index :].strip() else "at the end"
        return f"{place}: {problem}"
    return json.dumps(one_line(str(error)))[1:-1]
