"""The options of verbs for Ray Serve applications: `spec.ray` of a Model."""

from __future__ import annotations

from typing import Any, Final

import click

RAY_APPLICATION: Final = click.option(
    "--ray-application", metavar="MODULE:NAME",
    help="Ray Serve: import path of the application [serve.yaml in the folder, or app:app].",
)  # fmt: skip


RAY_SERVICE: Final = click.option(
    "--ray-service", metavar="URL", help="URL of a RayService that serves the model, in place of files.",
)  # fmt: skip


def take_ray_fields(named: dict[str, Any]) -> dict[str, Any] | None:
    """Remove the options from `named`, and return them as fields of `spec.ray`; None if none is given."""
    given = {"application": named.pop("ray_application"), "service": named.pop("ray_service", None)}
    return {name: value for name, value in given.items() if value is not None} or None
