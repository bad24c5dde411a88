"""The options of verbs for language models: `spec.llm` of a Model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from serving.cli.base.options import Command, option_group
from serving.client.errors import UsageError
from serving.engines.base.llm_arguments import BadLlmOptions, parse_adapter, parse_engine_args


def llm_options(embeddings: str) -> Callable[[Command], Command]:
    """Return a decorator that adds the options. `embeddings` is the declaration of the option of that name."""
    options = (
        click.option("--context-length", type=click.IntRange(min=0), metavar="TOKENS",
                     help="Language models: maximum number of tokens of a request, prompt and answer."),
        click.option(embeddings, is_flag=True, default=None, help="Language models: compute embeddings."),
        click.option("--adapter", "adapters", multiple=True, metavar="NAME=URI|PATH",
                     help="Language models: a LoRA adapter, all of them together; may be repeated."),
        click.option("--tool-parser", metavar="NAME", help="Language models: the engine's parser of tool calls."),
        click.option("--engine-arg", "engine_args", multiple=True, metavar="NAME=VALUE",
                     help="Language models: a further option of the engine; may be repeated."),
    )  # fmt: skip
    return option_group(options)


def take_llm_fields(named: dict[str, Any]) -> dict[str, Any] | None:
    """Remove the options from `named`, and return the given ones as fields of `spec.llm`; None if none is given.

    Raises UsageError.
    """
    given = {
        "contextLength": named.pop("context_length"),
        "embeddings": named.pop("embeddings"),
        "adapters": _adapters(named.pop("adapters")),
        "toolParser": named.pop("tool_parser"),
        "engineArgs": _engine_args(named.pop("engine_args")),
    }
    return {name: value for name, value in given.items() if value is not None} or None


def _adapters(texts: tuple[str, ...]) -> list[dict[str, str]] | None:
    try:
        found = [parse_adapter(text) for text in texts]
    except BadLlmOptions as error:
        raise UsageError(f"--adapter: {error}") from error
    return [
        {"name": one.name, "uri": one.uri, **({"digest": one.digest} if one.digest else {})} for one in found
    ] or None


def _engine_args(texts: tuple[str, ...]) -> dict[str, str] | None:
    try:
        return dict(parse_engine_args(texts)) or None
    except BadLlmOptions as error:
        raise UsageError(f"--engine-arg: {error}") from error
