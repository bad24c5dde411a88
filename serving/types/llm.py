"""The table of `spec.llm`: options of a language model (see `tables`). Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Final

from serving.types import formats
from serving.types.faults import LLM_FORMATS
from serving.types.fields import Flag, Format, Integer, Text, Texts
from serving.types.reader import short_repr
from serving.types.schema import rule
from serving.types.tables import Items, Nested

MOST_TOKENS: Final = 10_000_000
"""Tokens of a context; the longest of known models."""
MOST_ADAPTERS: Final = 32
MOST_ENGINE_ARGS: Final = 32
ADAPTER_FORMATS: Final = ("vllm",)
"""Formats whose engines load adapters while they serve."""
LONGEST_ENGINE_ARG: Final = 1024
"""Characters of one value, which may be JSON."""
_ENGINE_ARG: Final = re.compile(r"[a-z0-9][-a-z0-9]{0,62}")
_TOOL_PARSER: Final = re.compile(r"[A-Za-z0-9][-_.A-Za-z0-9]{0,62}")
"""These patterns are also in the CustomResourceDefinition, so they use only features of RE2."""


def engine_arg_fault(name: str) -> str:
    """Check the name of an engine's option."""
    if _ENGINE_ARG.fullmatch(name):
        return ""
    form = "lower-case letters, digits and '-', beginning with a letter or digit"
    return f"must be named with at most 63 {form}, not {short_repr(name)}"


def engine_value_fault(value: str) -> str:
    """Check the value of an engine's option, which may be empty."""
    if not value.isprintable():
        return "must be one line of printable characters"
    if len(value) > LONGEST_ENGINE_ARG:
        return f"must be at most {LONGEST_ENGINE_ARG} characters, not {len(value)}"
    return ""


def tool_parser_fault(name: str) -> str:
    """Check the name of a parser of tool calls."""
    if _TOOL_PARSER.fullmatch(name):
        return ""
    return f"must be at most 63 letters, digits, '-', '_' and '.', not {short_repr(name)}"


def llm_fault(model_format: str) -> str:
    """Return why a model of this format has no `llm`; empty if it may have it, or if its format is to be detected."""
    if not model_format or model_format in LLM_FORMATS:
        return ""
    return f"is for models of the formats {', '.join(LLM_FORMATS)}, not {model_format}: omit it"


def _adapter_faults(adapters: list[Any]) -> Iterator[str]:
    for name, count in Counter(one.name for one in adapters).items():
        if count > 1:
            yield f"name {name!r} is given {count} times: each must be unique"


@dataclass(frozen=True, slots=True)
class LlmAdapter:
    """A LoRA adapter."""

    name: Annotated[str, Text("Name. Callers ask for it by the model MODEL:NAME.", formats.LABEL)]
    uri: Annotated[str, Text("Address of its files, as that of the model.", formats.STORAGE_URI)]
    digest: Annotated[str, Text("SHA-256 of its files, verified before they are loaded.", formats.DIGEST)] = ""


@dataclass(frozen=True, slots=True)
class Llm:
    """Options of a language model.

    `engine_args` are pairs, sorted by name.
    """

    context_length: Annotated[
        int, Integer("Maximum number of tokens of a request, prompt and answer. 0: that of the model.", 0, MOST_TOKENS)
    ] = 0
    embeddings: Annotated[bool, Flag("Whether the engine computes embeddings.")] = False
    adapters: Annotated[
        tuple[LlmAdapter, ...],
        Items(
            "LoRA adapters. With modelFormat vllm and without workers, a change of the list makes no new version.",
            Nested("", LlmAdapter),
            MOST_ADAPTERS,
            (
                rule(
                    "self.all(one, self.exists_one(other, other.name == one.name))",
                    "each name must be unique",
                ),
            ),
            _adapter_faults,
        ),
    ] = ()
    tool_parser: Annotated[
        str,
        Text(
            "The engine's parser of tool calls (vLLM).",
            formats.matching(_TOOL_PARSER, tool_parser_fault, 63, bad=""),
        ),
    ] = ""
    engine_args: Annotated[
        tuple[tuple[str, str], ...],
        Texts(
            "Further options of the engine, by name without leading dashes. The engine refuses those that it does not "
            "know or that the platform sets.",
            formats.matching(_ENGINE_ARG, engine_arg_fault, 63),
            Format(engine_value_fault, LONGEST_ENGINE_ARG, (formats.follows(formats.LINE, engine_value_fault, "\n"),)),
            MOST_ENGINE_ARGS,
        ),
    ] = ()


NO_LLM: Final = Llm()
