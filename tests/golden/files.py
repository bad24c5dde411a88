"""The golden traces as files: `traces/CASE.yaml`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from tests.golden.reduction import Golden

FOLDER = Path(__file__).parent / "traces"
_HEADER = "# Recorded from real Knative by `python -m tests.golden.record`; not to be edited.\n"
_WIDTH = 160  # columns


def read_goldens(folder: Path = FOLDER) -> dict[str, Golden]:
    """Case → its golden trace."""
    return {path.stem: Golden.from_dict(yaml.safe_load(path.read_text())) for path in sorted(folder.glob("*.yaml"))}


def write_golden(golden: Golden, folder: Path = FOLDER) -> Path:
    """Write one; returns its path."""
    path = folder / f"{golden.case}.yaml"
    path.write_text(_HEADER + "".join(_section(key, value) for key, value in golden.to_dict().items()))
    return path


def _section(key: str, value: Any) -> str:
    """Maps of maps as dense as they may be, everything else in lines of its own."""
    flow = None if isinstance(value, dict) else False
    return str(yaml.safe_dump({key: value}, sort_keys=False, width=_WIDTH, default_flow_style=flow))
