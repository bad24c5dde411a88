"""The files of `charts/knodel`: its sources are the production overlay and the components of `manifests/`."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import yaml

from clusters.base.distribution import VERSION
from clusters.base.objects import Object
from serving.cli.doctor.cluster import MIN_MINOR_VERSION
from serving.install.bundle import load_dashboard, load_overlay
from tests.manifests.chart.documents import make_notes, make_readme, make_values_file
from tests.manifests.chart.templates import Sources, make_templates
from tests.manifests.chart.values import make_schema, make_values
from tests.manifests.text import HEAD, to_yaml

ROOT: Final = Path(__file__).parents[3]
COMPONENTS: Final = ROOT / "manifests" / "components"
CHART: Final = ROOT / "charts" / "knodel"
SOURCE: Final = "manifests/ and tests/manifests/chart"
IGNORED: Final = "*.orig\n*.swp\n.git/\n"


def read_sources() -> Sources:
    """Read the objects of the production overlay and of the components."""
    enforcement = yaml.safe_load((COMPONENTS / "owner-enforcement" / "kustomization.yaml").read_text())
    installation = load_overlay("production")
    return Sources(
        installation=installation,
        knative_eventing=_read("eventing", "addressable.yaml", "jobs.yaml"),
        config_readers=_read("config-readers", "binding.yaml"),
        monitoring=_read("monitoring", "pod-monitors.yaml", "prometheus-rule.yaml"),
        dashboard=load_dashboard(installation),
        model_namespace=_read("model-namespace", "network-policies.yaml"),
        finalizer_rules={
            patch["target"]["name"]: [change["value"] for change in yaml.safe_load(patch["patch"])]
            for patch in enforcement["patches"]
        },
    )


def make_chart() -> dict[Path, str]:
    """Return the text of each file of the chart."""
    sources = read_sources()
    values = make_values([*sources.installation, *sources.dashboard])
    head = HEAD.format(SOURCE)
    comment = f"{{{{- /* {head.removeprefix('# ').strip()} */ -}}}}\n"
    dashboards = (COMPONENTS / "monitoring" / "dashboards").glob("*.json")
    return {
        CHART / "Chart.yaml": to_yaml([_about()], SOURCE),
        CHART / ".helmignore": IGNORED,
        CHART / "README.md": make_readme(values, SOURCE),
        CHART / "values.yaml": head + make_values_file(values),
        CHART / "values.schema.json": json.dumps(make_schema(values), indent=2, ensure_ascii=False) + "\n",
        CHART / "templates" / "NOTES.txt": make_notes(),
        **{CHART / "templates" / name: comment + text for name, text in make_templates(sources).items()},
        **{CHART / "dashboards" / path.name: path.read_text() for path in dashboards},
    }


def write_chart() -> None:
    """Write all files of the chart, and remove others."""
    made = make_chart()
    for path, text in made.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    for path in CHART.rglob("*"):
        if path.is_file() and path not in made:
            path.unlink()


def _about() -> dict[str, Any]:
    return {
        "apiVersion": "v2",
        "name": "knodel",
        "description": "Serverless model serving on Knative: models, judged rollouts, warm pools, events.",
        "type": "application",
        "version": VERSION,
        "appVersion": VERSION,
        "kubeVersion": f">=1.{MIN_MINOR_VERSION}.0-0",
        "keywords": ["machine-learning", "inference", "knative", "serverless"],
        "annotations": {"artifacthub.io/license": "Apache-2.0"},
    }


def _read(component: str, *files: str) -> list[Object]:
    texts: Iterable[str] = ((COMPONENTS / component / file).read_text() for file in files)
    return [obj for text in texts for obj in yaml.safe_load_all(text)]
