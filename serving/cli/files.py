"""Read Models from a file or stdin (`-f`), and settings (`--config`)."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from clusters.base.objects import MODEL, Kind, Object, name_of, namespace_of
from clusters.net.strict_yaml import LARGEST_TEXT, LoadError
from serving.client.errors import UsageError
from serving.types.loader import load_models, read_models
from serving.types.settings.settings import Settings, SettingsError, load_settings


def models_of(
    source: str, namespace: str, *, namespace_given: bool = False, kinds: Sequence[Kind] = (MODEL,)
) -> list[Object]:
    """Return the Models, or objects of `kinds`, of a file, or of stdin for `-`, with their namespace filled in.

    With `namespace_given`, objects of another namespace are an error. Raises UsageError.
    """
    try:
        if source == "-":
            models = load_models(sys.stdin.read(LARGEST_TEXT + 1), "stdin", kinds)
        else:
            models = read_models(Path(source), kinds)
    except LoadError as error:
        raise UsageError(str(error)) from error
    except UnicodeDecodeError as error:
        raise UsageError("stdin is not UTF-8 text: give YAML or JSON") from error
    placed = [
        {**model, "metadata": {**model["metadata"], "namespace": model["metadata"].get("namespace", namespace)}}
        for model in models
    ]
    for model in placed if namespace_given else ():
        if namespace_of(model) != namespace:
            what, found = f"{model['kind'].lower()} {name_of(model)}", namespace_of(model)
            raise UsageError(
                f"the file has {what} in namespace {found}, not {namespace}: omit -n, or correct one of them"
            )
    return placed


def settings_of(
    config: str | None, *, gateway_port: int | None = None, control_port: int | None = None,
    control_tls_port: int | None = None,
) -> Settings:  # fmt: skip
    """Return the settings: defaults, overridden by the file, by variables, then by the ports. Raises UsageError."""
    try:
        path = Path(config) if config else None
        return load_settings(
            path, gateway_port=gateway_port, control_port=control_port, control_tls_port=control_tls_port
        )
    except (SettingsError, LoadError) as error:
        raise UsageError(str(error)) from error
