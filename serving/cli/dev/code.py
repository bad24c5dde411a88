"""What `knodel dev` finds out about a model's files before they are loaded."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from serving.engines.mlflow.mlmodel import FILE as MLMODEL
from serving.engines.python.module import FILE

PYTHON: Final = "python"
_ENVIRONMENT: Final = re.compile(rb"environ|putenv|dotenv")


def model_path(path: Path) -> Path:
    """Return what to serve for a path of the caller: the folder of a `model.py`, whose code may use files beside it."""
    return path.parent if path.name == FILE and path.is_file() else path


def detected_format(path: Path) -> str:
    """Return `python` for a folder with a `model.py`, else "": the model server detects the other formats.

    The caller's own code is allowed here, and weights beside it are part of it. MLflow may store a file of that name in
    its models.
    """
    return PYTHON if (path / FILE).is_file() and not (path / MLMODEL).is_file() else ""


def sets_environment(path: Path) -> bool:
    """Return whether the code of a model's folder may set environment variables.

    Libraries read some of them when they are imported, so they must not be imported before the code runs.
    """
    try:
        return any(_ENVIRONMENT.search(file.read_bytes()) for file in path.rglob("*.py"))
    except OSError:
        return True
