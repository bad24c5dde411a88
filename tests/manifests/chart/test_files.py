"""Test the files of the chart without Helm: they are what their sources make, and the schema refuses faulty values."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest
import yaml

from clusters.base.distribution import VERSION
from clusters.base.objects import Object
from serving.types.settings.settings import Settings, settings_to_dict
from tests.manifests.chart.generate import CHART, make_chart, read_sources
from tests.manifests.chart.insertions import Insertions, conditional
from tests.manifests.chart.values import make_schema, make_values, nested

SOURCES = read_sources()
VALUES = make_values([*SOURCES.installation, *SOURCES.dashboard])
SCHEMA = make_schema(VALUES)
OBJECT: Object = {"spec": {"replicas": 2, "args": ["--a"], "resources": {"cpu": 1}, "note": "{{ .x }}"}}


def with_value(path: str, value: Any) -> dict[str, Any]:
    """Return values that set one path."""
    made: Any = value
    for name in reversed(path.split(".")):
        made = {name: made}
    return dict(made)


def test_the_chart_is_what_its_sources_make() -> None:
    made = make_chart()

    old = [str(path) for path, text in made.items() if not path.exists() or path.read_text() != text]
    others = [str(path) for path in CHART.rglob("*") if path.is_file() and path not in made]
    assert (old, others) == ([], []), "run `make manifests`"
    assert yaml.safe_load(made[CHART / "Chart.yaml"])["version"] == VERSION


def test_the_default_values_are_valid_and_complete() -> None:
    written = yaml.safe_load((CHART / "values.yaml").read_text())

    assert written == nested(VALUES)
    assert json.loads((CHART / "values.schema.json").read_text()) == SCHEMA
    jsonschema.Draft7Validator.check_schema(SCHEMA)
    jsonschema.validate(written, SCHEMA)


def test_every_setting_is_a_value() -> None:
    settings = settings_to_dict(Settings())

    jsonschema.validate({"settings": settings}, SCHEMA)
    assert set(settings) == set(SCHEMA["properties"]["settings"]["properties"])


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("image.tag", 1.0),
        ("image.digest", "sha256:12"),
        ("image.pullPolicy", "Sometimes"),
        ("image.pullSecrets", ["name"]),
        ("controller.replicas", 0),
        ("controller.replicas", "2"),
        ("controller.enabled", False),
        ("controller.resources.limits.memory", "1 GB"),
        ("router.enabled", "false"),
        ("settings.gateway.adress", "10.0.0.1"),
        ("settings.gateway.port", "80"),
        ("settings.gateways", {}),
        ("logLevel", "trace"),
        ("modelNamespaces", ["Team"]),
        ("modelNamespaces", ["team", "team"]),
        ("replicas", 3),
        ("env", [{"value": "1"}]),
    ],
)
def test_faulty_values_are_refused(path: str, value: Any) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(with_value(path, value), SCHEMA)


def test_values_are_inserted_where_the_object_has_them() -> None:
    made = Insertions(OBJECT)
    made.scalar(("spec", "replicas"), ".Values.replicas")
    made.block(("spec", "resources"), ".Values.resources")
    made.lines(("spec", "args"), "- --b")
    made.optional(("spec",), "nodeSelector", ".Values.nodeSelector")

    assert made.text().splitlines() == [
        "spec:",
        "  replicas: {{ .Values.replicas }}",
        "  args:",
        "  - --a",
        "  - --b",
        "  resources: {{- toYaml .Values.resources | nindent 4 }}",
        """  note: '{{ "{{" }} .x }}'""",
        "  {{- with .Values.nodeSelector }}",
        "  nodeSelector: {{- toYaml . | nindent 4 }}",
        "  {{- end }}",
    ]
    assert OBJECT["spec"]["replicas"] == 2


def test_a_condition_encloses_its_documents() -> None:
    assert conditional("", ["a\n", "b\n"]) == "---\na\n---\nb\n"
    assert conditional(".Values.on", ["a\n"]) == "{{- if .Values.on }}\n---\na\n{{- end }}\n"
