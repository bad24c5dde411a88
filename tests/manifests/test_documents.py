"""The JSON schema for editors and the reference page. `test_crd` checks that the files are up to date."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft7Validator

from clusters.base.objects import EVENT_SOURCE, WARM_POOL, Object
from serving.crds.documents import make_json_schema, make_reference
from tests.manifests.bad_models import GOOD_MODELS
from tests.manifests.test_warm_pool_crd import FULL as FULL_POOL
from tests.serving.models import model_object
from tests.serving.pools import pool_object
from tests.serving.types.test_event_source import OIDC, source

SCHEMA = make_json_schema()
REFERENCE = make_reference()
VALIDATOR = Draft7Validator(SCHEMA)
EXAMPLES = Path(__file__).parents[2] / "examples"


def faults(obj: Any) -> list[str]:
    """Return the paths of values that an editor marks."""
    return [".".join(map(str, error.absolute_path)) for error in VALIDATOR.iter_errors(obj)]


def test_the_schema_is_valid() -> None:
    Draft7Validator.check_schema(SCHEMA)


@pytest.mark.parametrize("name", [name for name in GOOD_MODELS if "null" not in name])
def test_good_models_are_accepted(name: str) -> None:
    if name != "a schedule of UTC":  # it has a null, too
        assert faults(GOOD_MODELS[name]) == []


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.name)
def test_examples_name_the_schema_and_are_accepted(path: Path) -> None:
    text = path.read_text()
    reference = text.partition("\n")[0].removeprefix("# yaml-language-server: $schema=")
    assert (path.parent / reference).resolve() == EXAMPLES.parent / "docs" / "schema" / "knodel.json"
    for document in yaml.safe_load_all(text):
        assert faults(document) == []


def test_other_kinds_of_ours_and_foreign_objects_are_accepted() -> None:
    assert faults(pool_object(**FULL_POOL)) == []
    assert faults(source()) == []
    assert faults(source(auth={"oidc": OIDC}, mapping={"preset": "job", "when": ["$.a"]})) == []
    assert faults({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "keys"}, "stringData": {}}) == []


@pytest.mark.parametrize(
    ("obj", "path"),
    [
        (model_object(minReplica=1), "spec"),
        (model_object(minReplicas=-1), "spec.minReplicas"),
        (model_object(maxReplicas="2"), "spec.maxReplicas"),
        (model_object(timeout="5 minutes"), "spec.timeout"),
        (model_object(modelFormat="onx"), "spec.modelFormat"),
        (model_object(version=7), "spec.version"),
        (model_object(traffic=[]), "spec.traffic"),
        (model_object(rollout={"judge": {"metrics": [{"name": "a"}]}}), "spec.rollout.judge.metrics.0"),
        (
            model_object(schedules=[{"cron": "0 8 * * *", "duration": "1h", "minReplicas": 1, "timeZone": "Far away"}]),
            "spec.schedules.0.timeZone",
        ),
        (model_object(template={}), "spec"),
        (model_object("Magika"), "metadata.name"),
        ({**model_object(), "kind": "Modell"}, "kind"),
        ({**model_object(), "apiVersion": "knodel.dev/v9"}, "apiVersion"),
        (pool_object(size=1.5), "spec.size"),
        (source(mapping={"modle": "a"}), "spec.mapping"),
    ],
)
def test_mistakes_are_marked(obj: Object, path: str) -> None:
    assert path in faults(obj)


def properties(schema: Any) -> list[tuple[str, Any]]:
    """Return every property of a schema with its name."""
    own = list(schema.get("properties", {}).items())
    return own + [one for _, below in own for one in properties(below.get("items", below))]


def test_defaults_and_examples_are_valid_and_every_field_is_described() -> None:
    for kind in SCHEMA["definitions"].values():
        for name, schema in properties(kind["properties"]["spec"]):
            assert schema["description"].endswith("."), name
            for value in (*schema.get("examples", ()), *([schema["default"]] if "default" in schema else ())):
                assert list(Draft7Validator(schema).iter_errors(value)) == [], name


def test_the_reference_has_fields_of_every_kind_and_settings() -> None:
    for row in (
        "| `spec.storageUri` | text |  | Address of the model",
        "| `spec.maxReplicas` | integer | 4, or minReplicas if that is larger |",
        "| `spec.rollout.steps` | list of integer | 10, 50, 100 |",
        "| `spec.template.timeout` | duration | 300s | Timeout of a request. From 1s to 600s, in whole seconds. |",
        "| `spec.mapping.preset` | text |",
        "| `spec.change.storageUri` | text | Address of the artifact. |",
        "| `status.rollout.verdict.decision` | text |",
        "| `gateway.port` | `KNODEL_GATEWAY_PORT` | 8080 |",
    ):
        assert row in REFERENCE
    assert all(f"\n## {kind.kind}\n" in REFERENCE for kind in (WARM_POOL, EVENT_SOURCE))
