"""The definition of WarmPool says what the Python door says: what of it needs no API server is judged here."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.warmpool import spec
from clusters.base.objects import MODEL, WARM_POOL
from serving.crds.definition import make_crd, make_schema
from serving.types.schema import RULES
from serving.types.warm_pool import OF_A_MODEL, PoolTemplate, validate_warm_pool
from tests.manifests.checker import faults as schema_faults
from tests.serving.pools import pool_object

SCHEMA = make_schema(WARM_POOL)
SPEC = SCHEMA["properties"]["spec"]
TEMPLATE = SPEC["properties"]["template"]
FULL: dict[str, Any] = {
    "template": {
        "storage": {"secretRef": {"name": "keys"}},
        "modelFormat": "onnx",
        "runtime": {"name": "large"},
        "resources": {"cpu": "50m", "memory": "256Mi"},
        "containerConcurrency": 2,
        "timeout": "90s",
        "serviceAccountName": "models",
    },
    "size": "auto",
    "min": 1,
    "max": 3,
    "maxAge": "1h",
    "budget": {"cpu": 2, "memory": "8Gi"},
    "priority": 5,
    "weight": 2.5,
}


def python_faults(**spec: Any) -> set[str]:
    return {error.path for error in validate_warm_pool(None, pool_object(**spec))}


def test_the_longest_pool_fits_and_every_field_of_it_stands_in_the_schema_and_no_other() -> None:
    obj = pool_object(**FULL)
    assert list(schema_faults(SCHEMA, {**obj, "metadata": {"name": "small"}})) == []
    assert python_faults(**FULL) == set()
    assert set(SPEC["properties"]) == set(FULL)
    assert set(TEMPLATE["properties"]) == set(FULL["template"]) | set(PoolTemplate.LATER)


def test_every_field_may_be_absent_or_null() -> None:
    nothing = dict.fromkeys(FULL)
    assert list(schema_faults(SPEC, nothing)) == []
    assert python_faults(**nothing) == set()


def test_the_template_has_the_models_own_schemas() -> None:
    model = make_schema(MODEL)["properties"]["spec"]["properties"]
    assert {name: TEMPLATE["properties"][name] for name in OF_A_MODEL} == {name: model[name] for name in OF_A_MODEL}


def test_fields_of_later_releases_are_kept_and_refused_in_the_words_of_the_python_door() -> None:
    rules = {rule["rule"]: rule for rule in TEMPLATE[RULES]}
    for name, later in PoolTemplate.LATER.items():
        assert rules[f"!has(self.{name})"]["message"] == later.fault()
        assert rules[f"!has(self.{name})"]["fieldPath"] == f".{name}"


def test_the_descriptions_tell_the_defaults() -> None:
    told = {name: schema.get("description", "") for name, schema in SPEC["properties"].items()}
    assert told["size"].endswith(f"Default: {spec.AUTO}.")
    assert f"Default: {spec.MIN}." in told["min"]
    assert f"Default: {spec.MAX}," in told["max"]
    assert f"Default: {spec.MAX_AGE:g}s." in told["maxAge"]


values = st.one_of(
    st.none(), st.booleans(), st.integers(-2, 2**40), st.sampled_from([999, 1000, 1001]), st.text(max_size=3),
    st.lists(st.integers(), max_size=2), st.dictionaries(st.text(max_size=2), st.integers(), max_size=2),
)  # fmt: skip


@given(st.sampled_from(("min", "max")), values)
def test_bounds_of_auto_are_judged_alike(name: str, value: Any) -> None:
    lifted = {"max": 1000} if name == "min" else {}  # else the rule between the two
    mine = f"spec.{name}" in python_faults(**{**lifted, name: value})
    assert mine == bool(list(schema_faults(SPEC["properties"][name], value)))


@pytest.mark.parametrize("value", [True, [], {}, 1.5])
def test_what_is_no_size_is_refused_by_both(value: Any) -> None:
    assert python_faults(size=value) == {"spec.size"}
    assert list(schema_faults(SPEC["properties"]["size"], value))


def test_kubectl_shows_what_people_ask_for() -> None:
    [version] = make_crd(WARM_POOL)["spec"]["versions"]
    shown = [column["name"] for column in version["additionalPrinterColumns"] if not column.get("priority")]
    assert shown == ["Size", "Wanted", "Ready", "Claimed", "Age"]
    assert version["subresources"] == {"status": {}}
