"""checkov over every Pod that is rendered, expanded to Deployments, and over what an installation consists of.

What it finds is mended, or stands in `EXPLAINED` with the reason.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import yaml

from serving.install.bundle import rendered_path
from tests.security.finding import Explanation, Finding
from tests.security.pods import expanded, templates
from tests.security.tools import run

OVERLAY = "production"
"""The one whose objects are all looked at; of the others, the Pods."""
OWN_CLUSTER = "testbed:"
"""The overlay of the tests' own cluster, whose machine is small: its Pods have no limits."""

COMPONENTS, MODELS = r"deployment-knodel-|Deployment\.knodel-system\.", r"models-|examples-|warm-pool-"
EXPLAINED = (
    Explanation(
        "CKV_K8S_11", COMPONENTS, "a limit of processor time would delay a decision that is due; memory has one"
    ),
    Explanation(
        "CKV_K8S_15", COMPONENTS, "a version's tag is never moved, and a node without its registry starts anew"
    ),
    Explanation("CKV_K8S_43", COMPONENTS, "a digest is known once an image is pushed: `images` of an overlay names it"),
    Explanation("CKV_K8S_38", COMPONENTS, "they ask the API server, each with the verbs that it uses (test_rights)"),
    Explanation("CKV_K8S_29", MODELS, "Knative passes a Pod's context on behind a flag only: the container has it all"),
    Explanation(
        "CKV_K8S_40", MODELS, "the image's own user, 65532; some clusters give each namespace a range of theirs"
    ),
)


def write_objects(folder: Path) -> None:
    """A file for each Pod, expanded, and one for the installation."""
    looked_at = ((where, template) for where, template in templates() if not where.startswith(OWN_CLUSTER))
    for number, (where, template) in enumerate(looked_at):
        name = "".join(c if c.isalnum() else "-" for c in where).strip("-").lower()
        (folder / f"{number}-{name}.yaml").write_text(yaml.safe_dump(expanded(name[:60].strip("-"), template)))
    (folder / "installation.yaml").write_text(rendered_path(OVERLAY).read_text())


def findings() -> list[Finding]:
    """Each failed check. Raises ValueError when checkov says no JSON."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        write_objects(folder)
        done = run("checkov", "--directory", folder, "--framework", "kubernetes", "--output", "json", "--quiet",
                   "--compact", "--skip-download")  # fmt: skip
        said: dict[str, Any] = json.loads(done.stdout)
    summary = said["summary"]
    if summary["parsing_errors"] or not summary["passed"]:
        raise ValueError(f"checkov has not read what it was given: {summary}")
    return [
        Finding("checkov", one["check_id"], f"{Path(one['file_path']).name} {one['resource']}", one["check_name"])
        for one in said["results"]["failed_checks"]
    ]
