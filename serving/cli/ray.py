"""The option of verbs for Ray Serve applications: `spec.ray` of a Model."""

from __future__ import annotations

from typing import Any, Final

import click

RAY_APPLICATION: Final = click.option(
    "--ray-application", metavar="MODULE:NAME",
    help="Ray Serve: import path of the application in a folder without serve.yaml [app:app].",
)  # fmt: skip


def take_ray_fields(named: dict[str, Any]) -> dict[str, Any] | None:
    """Remove the option from `named`, and return it as fields of `spec.ray`; None if it is not given."""
    application = named.pop("ray_application")
    return None if application is None else {"application": application}
