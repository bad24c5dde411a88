"""The table of `spec.ray`: options of a Ray Serve application (see `tables`). Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final

from serving.engines.base.ray_options import APPLICATION, LONGEST_APPLICATION, application_fault
from serving.engines.base.registry import RAY
from serving.types import formats
from serving.types.fields import Text


def ray_fault(model_format: str) -> str:
    """Return why a model of this format has no `ray`; empty if it may have it."""
    return "" if model_format == RAY else f"is for models of the format {RAY}: set modelFormat {RAY}, or omit it"


@dataclass(frozen=True, slots=True)
class Ray:
    """Options of a Ray Serve application."""

    application: Annotated[
        str,
        Text(
            "Import path of the application, MODULE:NAME, for a folder without serve.yaml. Absent: app:app.",
            formats.matching(APPLICATION, application_fault, LONGEST_APPLICATION, bad="app"),
        ),
    ] = ""


NO_RAY: Final = Ray()
