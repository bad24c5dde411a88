"""Options of a language model. Pure.

They come from the command line or from a load call, where they have the form of a Model's `spec.llm`:

    {"contextLength"?, "embeddings"?, "adapters"?: [{"name", "uri", "digest"?}], "toolParser"?, "engineArgs"?}
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import Final

import msgspec

from clusters.base.redact import redact_url
from serving.engines.base.llm_arguments import BadLlmOptions
from serving.storage.base import digest as digests
from serving.storage.base.errors import StorageError

MAX_TOKENS: Final = 10_000_000
MAX_URI_LENGTH: Final = 8192  # characters; signed URLs of object stores have about 2 000
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_ENGINE_ARG: Final = re.compile(r"[a-z0-9][-a-z0-9]{0,62}")
_MAX_QUOTED: Final = 80  # characters of an invalid value that a message repeats


class AdapterSource(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The location of a LoRA adapter; a `digest` of "" accepts any files."""

    name: str
    uri: str
    digest: str = ""


class LlmParameters(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """Options of a language model, as in `engines.base.engine.LlmOptions`, with the locations of the adapters."""

    context_length: int = 0
    embeddings: bool = False
    adapters: tuple[AdapterSource, ...] = ()
    tool_parser: str = ""
    engine_args: Mapping[str, str] = {}

    def check(self) -> None:
        """Check the values. Raises BadLlmOptions."""
        if not 0 <= self.context_length <= MAX_TOKENS:
            raise BadLlmOptions(f"the context length {self.context_length} must be from 0 to {MAX_TOKENS}")
        for adapter in self.adapters:
            _check_adapter(adapter)
        for name, count in Counter(adapter.name for adapter in self.adapters).items():
            if count > 1:
                raise BadLlmOptions(f"adapter {name!r} is given {count} times: each name must be unique")
        for name in self.engine_args:
            if not _ENGINE_ARG.fullmatch(name):
                raise BadLlmOptions(
                    f"engine argument {name[:_MAX_QUOTED]!r} is not a name: use at most 63 of a-z, 0-9 and '-', no '-' "
                    "at the beginning"
                )


NO_LLM: Final = LlmParameters()


def _check_adapter(adapter: AdapterSource) -> None:
    if not _NAME.fullmatch(adapter.name):
        raise BadLlmOptions(
            f"adapter {adapter.name[:_MAX_QUOTED]!r} is not a name: use at most 63 of a-z, 0-9 and '-', no '-' at the "
            "ends"
        )
    if not 0 < len(adapter.uri) <= MAX_URI_LENGTH:
        raise BadLlmOptions(f"the URI of adapter {adapter.name!r} must have 1 to {MAX_URI_LENGTH} characters")
    try:
        digests.check_form(redact_url(adapter.uri), adapter.digest)
    except StorageError as error:
        raise BadLlmOptions(f"adapter {adapter.name!r}: {error}") from error
