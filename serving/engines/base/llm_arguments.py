"""Read the arguments of a command line for language models. Pure.

Without compiled packages, since the command imports this module too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from clusters.base.errors import KnodelError
from clusters.base.redact import redact_url

ADAPTER_FORM: Final = "NAME=URI or NAME=URI#sha256:HEX"
ADAPTERS_VARIABLE: Final = "KNODEL_ADAPTERS"
"""Environment variable with the folder of the list of adapters; without it they are those of the command line."""
ADAPTERS_FILE: Final = "adapters.json"
"""Name of the list in that folder."""
DIGEST_PREFIX: Final = "sha256:"
_MAX_QUOTED: Final = 80  # characters of an invalid value that a message repeats


class BadLlmOptions(KnodelError):
    """Raised for invalid options of a language model."""


class AdapterArgument(NamedTuple):
    """The location of a LoRA adapter; `digest` is "" if none is given."""

    name: str
    uri: str
    digest: str


def parse_adapter(text: str) -> AdapterArgument:
    """Return the adapter of `ADAPTER_FORM`. Raises BadLlmOptions.

    Example:
        >>> parse_adapter("pirate=hf://org/pirate-lora@v1").uri
        'hf://org/pirate-lora@v1'
    """
    name, _, location = text.partition("=")
    uri, mark, digest = location.partition("#")
    if not uri:
        raise BadLlmOptions(f"adapter {redact_url(text)[:_MAX_QUOTED]!r} has no URI: write {ADAPTER_FORM}")
    if mark and not digest.startswith(DIGEST_PREFIX):
        raise BadLlmOptions(f"adapter {name[:_MAX_QUOTED]!r} has a fragment that is not a digest: write {ADAPTER_FORM}")
    return AdapterArgument(name, uri, digest)


def parse_engine_args(texts: Iterable[str]) -> Mapping[str, str]:
    """Return the values of `NAME=VALUE` by name. Raises BadLlmOptions for another form, or a name given twice."""
    found: dict[str, str] = {}
    for text in texts:
        name, separator, value = text.partition("=")
        if not separator:
            raise BadLlmOptions(f"engine argument {text[:_MAX_QUOTED]!r} has no value: write NAME=VALUE")
        if name in found:
            raise BadLlmOptions(f"engine argument {name[:_MAX_QUOTED]!r} is given twice: give it once")
        found[name] = value
    return found
