"""bandit over all that is installed, and the examples.

A finding is explained where it stands: by the same comment that ruff reads (`# noqa: S311 - why`: ruff's S rules bear
bandit's numbers), or, where only bandit finds it, by `# nosec B311 - why`. What ruff leaves out of a folder by
pyproject.toml is left out here, too.
"""

from __future__ import annotations

import json
import re
import tomllib
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from tests.security.finding import Finding
from tests.security.tools import ROOT, run

LOOKED_AT = ("knodel", "clusters", "autoscaler", "eventing", "serving", "examples", "loadtests")
EXPLAINED_IN_PLACE = re.compile(r"# noqa: (?P<rules>[A-Z0-9, ]+?)(?: - | {2})(?P<why>\S.*)")


def findings() -> list[Finding]:
    """Each that no comment beside it explains. Raises ValueError when a file could not be read."""
    done = run("bandit", "--quiet", "--recursive", "--configfile", "pyproject.toml", "--format", "json", *LOOKED_AT)
    said: dict[str, Any] = json.loads(done.stdout)
    if said["errors"] or not said["metrics"]["_totals"]["loc"]:
        raise ValueError(f"bandit has not read everything: {said['errors']}")
    left_out = _left_out()
    return [
        Finding("bandit", one["test_id"], f"{one['filename']}:{one['line_number']}", one["issue_text"])
        for one in said["results"]
        if not is_explained(one["test_id"], _lines(ROOT / one["filename"], one["line_range"]))
        and not any(fnmatch(one["filename"], folder) and _same(one["test_id"]) in rules for folder, rules in left_out)
    ]


def is_explained(rule: str, lines: list[str]) -> bool:
    """Whether a comment in these lines gives a reason for ruff's rule of the same number."""
    return any(_same(rule) in match["rules"] for line in lines if (match := EXPLAINED_IN_PLACE.search(line)))


def _same(rule: str) -> str:
    """Ruff's name for it."""
    return f"S{rule.removeprefix('B')}"


def _left_out() -> list[tuple[str, list[str]]]:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    return list(settings["tool"]["ruff"]["lint"]["per-file-ignores"].items())


def _lines(path: Path, numbers: list[int]) -> list[str]:
    lines = path.read_text().splitlines()
    return [lines[number - 1] for number in numbers]
