"""Makes what is generated in `manifests/`, `charts/` and `docs/`, and for each overlay the file of `knodel install`.

`make manifests` runs this as `python -m tests.manifests.generate`; it needs kubectl for the overlays. Each rendered
file tells in its head the digests of its sources and of its content, so that the everyday tests, which have no
kubectl, notice both a forgotten `make manifests` and an edit by hand.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path

from clusters.base.objects import OWN_KINDS
from serving.crds.admission import make_event_source_policies, make_policies
from serving.crds.definition import make_crd
from serving.crds.documents import make_json_schema, make_reference
from serving.install.bundle import DASHBOARD, OVERLAYS, rendered_path
from tests.manifests.alerts import make_prometheus_rule, rule_groups
from tests.manifests.argo_cd import make_argo_cd_settings
from tests.manifests.chart.generate import write_chart
from tests.manifests.dashboards import DASHBOARDS
from tests.manifests.text import LiteralDumper, to_yaml

MANIFESTS = Path(__file__).parents[2] / "manifests"
DOCS = MANIFESTS.parent / "docs"
CRDS = MANIFESTS / "base" / "crds"
ADMISSION = MANIFESTS / "base" / "admission"
MONITORING = MANIFESTS / "components" / "monitoring"
ARGO_CD = MANIFESTS / "components" / "argo-cd"
RENDERED = {
    **{name: MANIFESTS / "overlays" / name for name in OVERLAYS},
    DASHBOARD: MANIFESTS / "components" / DASHBOARD,
}
"""The folder of each rendered file, by its name."""
TYPES, ALERTS = "serving/crds", "tests/manifests/alerts.py"


def generated() -> dict[Path, str]:
    """Each file that the Python types alone decide, with its text."""
    return {
        **{CRDS / f"{kind.plural}.yaml": to_yaml([make_crd(kind)], TYPES) for kind in OWN_KINDS},
        DOCS / "reference.md": make_reference(),
        DOCS / "schema" / "knodel.json": json.dumps(make_json_schema(), indent=2, ensure_ascii=False) + "\n",
        ADMISSION / "models.yaml": to_yaml(make_policies(), TYPES),
        ADMISSION / "event-sources.yaml": to_yaml(make_event_source_policies(), TYPES),
        MONITORING / "rules.yaml": to_yaml([rule_groups()], ALERTS),
        MONITORING / "prometheus-rule.yaml": to_yaml([make_prometheus_rule()], ALERTS),
        ARGO_CD / "argocd-cm.yaml": to_yaml(
            [make_argo_cd_settings((ARGO_CD / "health.lua").read_text())],
            "manifests/components/argo-cd/health.lua",
            LiteralDumper,
        ),
        **{MONITORING / "dashboards" / f"{one.name}.json": one.to_json() for one in DASHBOARDS},
    }


def sources_of(name: str) -> list[Path]:
    """Every file that `kubectl kustomize` reads for a rendered file."""
    folders = (MANIFESTS / "base", RENDERED[name]) if name in OVERLAYS else (RENDERED[name],)
    return sorted(path for folder in folders for path in folder.rglob("*.yaml"))


def head_of(name: str, body: str) -> str:
    """The head of a rendered file, by its sources as they are now."""
    digest = hashlib.sha256()
    for path in sources_of(name):
        digest.update(f"{path.relative_to(MANIFESTS)}\n".encode() + path.read_bytes())
    content = hashlib.sha256(body.encode()).hexdigest()
    return (
        f"# Made by `make manifests` from {RENDERED[name].relative_to(MANIFESTS.parent)}: do not edit.\n"
        f"# sources sha256:{digest.hexdigest()}\n# content sha256:{content}\n"
    )


def split_head(text: str) -> tuple[str, str]:
    """The head and the rest of a rendered file."""
    lines = text.splitlines(keepends=True)
    return "".join(lines[:3]), "".join(lines[3:])


def kustomize(name: str) -> str:
    """What kubectl makes of the folder. Raises CalledProcessError, FileNotFoundError without kubectl."""
    made = subprocess.run(["kubectl", "kustomize", str(RENDERED[name])], check=True, capture_output=True, text=True)
    return made.stdout


def main() -> int:
    """Write every file."""
    for path, text in generated().items():
        path.write_text(text)
    for name in RENDERED:
        try:
            body = kustomize(name)
        except FileNotFoundError:
            print("kubectl is not on the PATH: it renders the overlays", file=sys.stderr)
            return 1
        except subprocess.CalledProcessError as error:
            print(f"{RENDERED[name]}: {error.stderr.strip()}", file=sys.stderr)
            return 1
        rendered_path(name).write_text(head_of(name, body) + body)
    write_chart()
    return 0


if __name__ == "__main__":
    sys.exit(main())
