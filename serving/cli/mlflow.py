"""URIs of MLflow in commands: they are resolved to the files of one version before anything else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from serving.cli.base.output import ProgressLine

if TYPE_CHECKING:
    from serving.client.mlflow.resolve import ResolvedModel


def resolve_reference(uri: str) -> ResolvedModel:
    """Return the files of a URI of MLflow, with progress on a terminal. Raises as `resolve`."""
    from serving.client.mlflow.resolve import resolve_shown  # heavy; only these URIs need it

    line = ProgressLine()
    try:
        return resolve_shown(uri, line.show)
    finally:
        line.clear()
