"""Options `--preset` and `--mapping` of `knodel events allow`: map events of other formats to changes of models."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from io import TextIOWrapper
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from clusters.net.strict_yaml import LARGEST_TEXT, LoadError, load_documents
from eventing.mapping.presets import PRESETS
from serving.cli.names import files
from serving.client.errors import UsageError
from serving.types.input_files import open_input

F = TypeVar("F", bound=Callable[..., Any])

STDIN: Final = "-"


def mapping_options(function: F) -> F:
    """Add both options, with the parameters `preset` and `mapping`."""
    preset = click.option("--preset", type=click.Choice(list(PRESETS)), help="Built-in mapping for a kind of sender.")
    file = click.option(
        "--mapping",
        metavar="FILE",
        shell_complete=files,
        help="YAML file with a mapping (docs/event-sources.md); - is stdin.",
    )
    return preset(file(function))


def mapping_of(preset: str | None, file: str | None) -> dict[str, Any] | None:
    """Return `spec.mapping` for the options; None without them. Raises UsageError."""
    if preset is None and file is None:
        return None
    mapping = _read(file) if file is not None else {}
    if preset is not None and mapping.get("preset") not in (None, preset):
        raise UsageError(f"--mapping {file} has the preset {mapping['preset']}: omit --preset")
    return {**mapping, **({"preset": preset} if preset is not None else {})}


def replacement_patch(mapping: Mapping[str, Any], present: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the merge patch that replaces `present` by `mapping`: it removes the other fields."""
    return {**dict.fromkeys(present or ()), **mapping}


def _read(file: str) -> dict[str, Any]:
    try:
        if file == STDIN:
            text = sys.stdin.read(LARGEST_TEXT + 1)  # the loader refuses longer text
        else:
            with TextIOWrapper(open_input(Path(file)), encoding="utf-8") as opened:
                text = opened.read(LARGEST_TEXT + 1)
        documents = load_documents(text, file)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise UsageError(f"--mapping {file} cannot be read ({reason})") from error
    except LoadError as error:
        raise UsageError(f"--mapping: {error}") from error
    if len(documents) != 1 or not isinstance(documents[0], dict):
        raise UsageError(f"--mapping {file} is not a YAML mapping: write fields such as `model: iris`")
    given = documents[0]
    return dict(given["mapping"]) if list(given) == ["mapping"] and isinstance(given["mapping"], dict) else given
