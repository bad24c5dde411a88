"""semgrep by rules of our own, which nothing is downloaded for: `rules/NAME.yaml`.

Each has examples that provoke it and ones that must not (`rules/NAME.py.txt`, in semgrep's own notation of `ruleid` and
`ok`); they are no Python files, so that no other tool reads them.
"""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from pathlib import Path
from typing import Any

import yaml

from tests.security.finding import Explanation, Finding
from tests.security.tools import ROOT, run

RULES = Path(__file__).parent / "rules"
LOOKED_AT = ("knodel", "clusters", "autoscaler", "eventing", "serving", "examples")
CLIENT = r"^(serving/client/api_server|clusters/kubernetes/login)\.py:"
EXPLAINED = (
    Explanation("peers-are-verified", CLIENT, "where the user's kubeconfig says insecure-skip-tls-verify, as kubectl"),
    Explanation(
        "no-proxy-of-the-environment", CLIENT, "the user's way to the API server of the kubeconfig, as kubectl"
    ),
    Explanation(
        "peers-are-verified",
        r"^serving/client/mlflow/tracking\.py:",
        "where the user sets MLFLOW_TRACKING_INSECURE_TLS, as MLflow's client",
    ),
    Explanation(
        "no-library-that-connects-by-itself",
        r"^serving/cli/templates/\w+/download\.py:",
        "scripts of the projects of `knodel init`, which their users run themselves",
    ),
    Explanation(
        "no-debug-surface",
        r"^examples/ray/app\.py:",
        "an application of Ray Serve; its documentation pages are its own",
    ),
    Explanation(
        "tokens-name-their-algorithms", r"^eventing/auth/oidc\.py:", "read to find whose keys to check it by, next"
    ),
)


def findings() -> list[Finding]:
    """Each in what is installed, and in the examples. Raises ValueError when a file could not be read."""
    done = run("semgrep", "scan", "--config", RULES, "--metrics", "off", "--disable-version-check", "--json", "--quiet",
               "--no-git-ignore", "--jobs", "1", *LOOKED_AT)  # fmt: skip
    said: dict[str, Any] = json.loads(done.stdout)
    if said["errors"] or not said["paths"]["scanned"]:
        raise ValueError(f"semgrep has not read everything: {said['errors']}")
    return [
        Finding("semgrep", one["check_id"].rpartition(".")[2], f"{one['path']}:{one['start']['line']}", _line(one))
        for one in said["results"]
    ]


def _line(result: dict[str, Any]) -> str:
    line = (ROOT / result["path"]).read_text().splitlines()[result["start"]["line"] - 1].strip()
    return f"{line}: {result['extra']['message']}"


def check_rules() -> list[str]:
    """What is wrong with the rules themselves: an example that one does not find, or finds against its word."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        for rules in RULES.glob("*.yaml"):
            shutil.copy(rules, folder)
            shutil.copy(RULES / f"{rules.stem}.py.txt", folder / f"{rules.stem}.py")
        done = run("semgrep", "test", "--json", folder)
        said: dict[str, Any] = json.loads(done.stdout)
    wrong = [
        f"{rule}: {result['errors'] or result['matches']}"
        for one in said["results"].values()
        for rule, result in one["checks"].items()
        if not result["passed"]
    ]
    return [*wrong, *(f"{said[key]}" for key in ("config_missing_tests", "config_with_errors") if said.get(key))]


def without_example() -> list[str]:
    """Rules that no example provokes, or that none clears."""
    found: list[str] = []
    for path in sorted(RULES.glob("*.yaml")):
        examples = (RULES / f"{path.stem}.py.txt").read_text()
        found += (
            f"{rule['id']} has no `{mark}` in {path.stem}.py.txt"
            for rule in yaml.safe_load(path.read_text())["rules"]
            for mark in ("ruleid", "ok")
            if not re.search(rf"# {mark}: {rule['id']}$", examples, re.MULTILINE)
        )
    return found
