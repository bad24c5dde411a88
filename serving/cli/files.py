"""What verbs read from files: Models from a file or stdin (`-f`), settings (`--config`)."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from clusters.base.objects import MODEL, Kind, Object, name_of, namespace_of
from serving.cli.base.errors import UsageError
from serving.types.loader import LARGEST_TEXT, LoadError, load_models, read_models
from serving.types.settings.settings import Settings, SettingsError, load_settings


def models_of(source: str, namespace: str, *, bound: bool = False, kinds: Sequence[Kind] = (MODEL,)) -> list[Object]:
    """The Models, or objects of these kinds, of FILE, or of stdin for `-`, with the namespace filled in.

    `bound`: none may be of another namespace.

    Raises UsageError.
    """
    try:
        models = _of_stdin(kinds) if source == "-" else read_models(Path(source), kinds)
    except LoadError as error:
        raise UsageError(str(error)) from error
    except UnicodeDecodeError as error:
        raise UsageError("stdin is no UTF-8 text: give YAML or JSON") from error
    placed = [_placed(model, namespace) for model in models]
    for model in placed if bound else ():
        if namespace_of(model) != namespace:
            what, found = f"{model['kind'].lower()} {name_of(model)}", namespace_of(model)
            raise UsageError(
                f"the file puts {what} into namespace {found}, not {namespace}: leave -n out, or correct one of them"
            )
    return placed


def _of_stdin(kinds: Sequence[Kind]) -> list[Object]:
    return load_models(sys.stdin.read(LARGEST_TEXT + 1), "stdin", kinds)


def settings_of(
    config: str | None, *, gateway_port: int | None = None, control_port: int | None = None,
    control_tls_port: int | None = None,
) -> Settings:  # fmt: skip
    """The settings in force: defaults, the file, variables, then the ports. Raises UsageError."""
    try:
        path = Path(config) if config else None
        return load_settings(
            path, gateway_port=gateway_port, control_port=control_port, control_tls_port=control_tls_port
        )
    except (SettingsError, LoadError) as error:
        raise UsageError(str(error)) from error


def _placed(model: Object, namespace: str) -> Object:
    metadata = {**model["metadata"]}
    metadata.setdefault("namespace", namespace)
    return {**model, "metadata": metadata}
