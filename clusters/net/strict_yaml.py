"""A strict loader of YAML and JSON text, for settings, manifests and request bodies. Pure.

The loader is safe and accepts only features of YAML that JSON has: no tags, no dates, no duplicate keys, few aliases.
The bounds of depth and values are those of `strict_json`. Every fault is a `LoadError` with the line and the remedy.
"""

from __future__ import annotations

import json
import math
from collections.abc import Hashable
from typing import Any

import yaml
from yaml.composer import Composer
from yaml.constructor import SafeConstructor
from yaml.parser import Parser
from yaml.reader import Reader
from yaml.resolver import Resolver
from yaml.scanner import Scanner

from clusters.base.errors import KnodelError
from clusters.base.redact import one_line
from clusters.base.sizes import format_size
from clusters.net.strict_json import DEEPEST, MOST_VALUES

LARGEST_TEXT = 3 * 1024 * 1024
"""Bytes of one file: the request limit of kube-apiserver."""
MOST_ALIASES = 100
"""Aliases in one file. Usual files have a few."""

_TAG_PREFIX = "tag:yaml.org,2002:"
_JSON_TAGS = frozenset(f"{_TAG_PREFIX}{name}" for name in ("null", "bool", "int", "float", "str", "seq", "map"))


class LoadError(KnodelError):
    """The text is not YAML or JSON, or has features that are not accepted."""


class _PythonParser(Reader, Scanner, Parser):
    """The parser of an installation of PyYAML without libyaml: the same events, ten times as slow."""

    def __init__(self, text: str) -> None:
        Reader.__init__(self, text)
        Scanner.__init__(self)
        Parser.__init__(self)


try:
    from yaml.cyaml import CParser  # type: ignore[attr-defined]
except ImportError:
    CParser = _PythonParser  # type: ignore[misc,assignment]


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
    check_size(len(text.encode("utf-8", "surrogatepass")), source)
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


def check_size(size: int, source: str) -> None:
    """Raise LoadError for a text of more than LARGEST_TEXT bytes."""
    if size > LARGEST_TEXT:
        raise LoadError(f"{source} is larger than {format_size(LARGEST_TEXT)}: split it")


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
