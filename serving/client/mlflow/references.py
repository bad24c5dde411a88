"""Read the URIs that only a tracking server of MLflow can resolve. Pure.

Source: mlflow `store/artifact/utils/models.py` and `store/artifact/runs_artifact_repo.py` (3.17).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from serving.client.errors import UsageError
from serving.types.faults import MLFLOW_SCHEMES

LATEST: Final = "latest"
REGISTERED: Final = frozenset({"version", "alias", "stage", LATEST})
"""Kinds of references to the model registry."""
FORMS: Final = (
    "models:/NAME/VERSION, models:/NAME@ALIAS, models:/NAME/latest, models:/MODEL_ID, runs:/RUN_ID/PATH "
    "or mlflow-artifacts:/PATH"
)


@dataclass(frozen=True, slots=True)
class Reference:
    """A URI of MLflow.

    kind    `version`, `alias`, `stage`, `latest`, `logged` (a model's id), `run` or `artifacts`
    name    the registered model; the id of the logged model or the run; the path of artifacts
    part    the version, alias or stage; the path inside the run; the host of artifacts
    """

    uri: str
    kind: str
    name: str
    part: str = ""


def is_reference(text: str) -> bool:
    """Return whether a text is a URI with one of MLflow's schemes."""
    return text.partition(":")[0].lower() in MLFLOW_SCHEMES and ":/" in text


def read_reference(uri: str) -> Reference:
    """Return the parts of a URI of MLflow. Raises UsageError.

    Example:
        read_reference("models:/churn@champion")  # Reference(…, kind="alias", name="churn", part="champion")
    """
    scheme, _, rest = uri.partition(":")
    scheme, path = scheme.lower(), rest.lstrip("/")
    parts = path.split("/")
    if not uri.isprintable() or not path or ".." in parts or "\\" in path or "?" in path or "#" in path:
        raise _malformed(uri)
    if scheme == "mlflow-artifacts":
        host = parts.pop(0) if rest.startswith("//") and not rest.startswith("///") else ""
        return Reference(uri, "artifacts", "/".join(parts).strip("/"), host)
    if scheme == "runs":
        return Reference(uri, "run", parts[0], "/".join(parts[1:]).strip("/"))
    if scheme != "models" or len(parts) > 2 or not all(part.strip() for part in parts):
        raise _malformed(uri)
    if len(parts) == 2:
        name, part = parts
        kind = "version" if part.isascii() and part.isdigit() else LATEST if part.lower() == LATEST else "stage"
        return Reference(uri, kind, name, "" if kind == LATEST else part)
    name, at, alias = path.rpartition("@")
    if at:
        if not name or not alias:
            raise _malformed(uri)
        return Reference(uri, "alias", name, alias)
    return Reference(uri, "logged", path)


def _malformed(uri: str) -> UsageError:
    return UsageError(f"{uri[:200]!r} is not a URI of MLflow: write {FORMS}")
