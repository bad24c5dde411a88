"""Validation of WarmPools: all faults at once, each with the path of its field."""

from __future__ import annotations

from typing import Any

import pytest

from clusters.base.errors import Invalid
from serving.types.resources import Resources
from serving.types.validation import read_model, validate_model
from serving.types.warm_pool import Budget, read_warm_pool, validate_warm_pool
from tests.serving.models import model_object
from tests.serving.pools import pool, pool_object


def faults(name: str = "small", **spec: Any) -> dict[str, str]:
    return {error.path: error.message for error in validate_warm_pool(None, pool_object(name, **spec))}


def test_the_shortest_pool_has_every_default() -> None:
    spec = pool().spec
    assert (spec.size, spec.least, spec.most, spec.max_age) == (None, 1, 4, 86_400.0)
    assert spec.budget == Budget("", "")


def test_a_template_that_says_nothing_means_what_a_model_means_that_says_nothing() -> None:
    template, model = pool().spec.template, read_model(model_object()).spec
    assert template.resources == model.resources
    assert template.container_concurrency == model.container_concurrency
    assert (template.timeout, template.model_format) == (model.timeout, model.model_format)
    assert template.service_account_name == model.service_account_name


def test_the_longest_pool_is_taken() -> None:
    spec = pool(
        template={
            "modelFormat": "onnx",
            "resources": {"cpu": "500m", "memory": "1024Mi"},
            "containerConcurrency": 2,
            "timeout": "1m30s",
            "serviceAccountName": "models",
        },
        size="auto",
        min=2,
        max=9,
        maxAge="1h30m",
        budget={"cpu": 4, "memory": "8Gi"},
    ).spec
    assert spec.template.resources == Resources("500m", "1Gi")
    assert spec.template.timeout == 90.0
    assert (spec.size, spec.least, spec.most, spec.max_age) == (None, 2, 9, 5400.0)
    assert spec.budget == Budget("4", "8Gi")


@pytest.mark.parametrize("size", [0, 1, 1000])
def test_a_size_is_a_whole_number(size: int) -> None:
    assert pool(size=size).spec.size == size


@pytest.mark.parametrize("size", [-1, 1001, 1.5, "3", "Auto", True, [], {}])
def test_other_sizes_are_refused(size: Any) -> None:
    assert faults(size=size)["spec.size"].startswith("must be auto or a whole number from 0 to 1000, not ")


def test_the_least_of_a_pool_is_at_most_its_most() -> None:
    assert faults(min=3, max=2) == {"spec.min": "must be at most max (2), not 3"}
    assert pool(min=9).spec.most == 9


@pytest.mark.bad_input("object-others")
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("min", -1),
        ("max", 0),
        ("maxAge", "30s"),
        ("maxAge", "721h"),
        ("maxAge", 3600),
        ("maxAge", "1d"),
    ],
)
def test_values_out_of_bounds_are_refused_by_their_path(field: str, value: Any) -> None:
    assert list(faults(**{field: value})) == [f"spec.{field}"]


def test_all_faults_are_told_at_once() -> None:
    found = faults(size="x", budget={"cpu": "0", "gpu": 1}, template={"timeout": "700s"}, sizes=1)
    assert set(found) == {"spec.size", "spec.budget.cpu", "spec.budget.gpu", "spec.template.timeout", "spec.sizes"}
    assert found["spec.sizes"] == "unknown field; did you mean size?"


@pytest.mark.parametrize("field", ["template", "protocol"])
def test_what_templates_will_have_later_is_refused_by_name(field: str) -> None:
    assert faults(template={field: {}})[f"spec.template.{field}"].startswith("not supported yet: ")


@pytest.mark.parametrize("field", ["storageUri", "digest", "version", "batching", "minReplicas", "variants", "traffic"])
def test_what_a_claim_brings_is_no_field_of_a_template(field: str) -> None:
    assert faults(template={field: "x"})[f"spec.template.{field}"].startswith("unknown field")


@pytest.mark.parametrize("name", ["", "Small", "1a", "-a", "a-", "a.b", "a" * 42])
def test_bad_names_are_refused(name: str) -> None:
    assert "metadata.name" in faults(name)


@pytest.mark.parametrize("name", ["a", "a" * 41, "knodel-pool-x"])
def test_good_names_are_taken(name: str) -> None:
    assert faults(name) == {}


def test_a_model_with_the_name_of_a_seed_is_refused() -> None:
    [error] = validate_model(None, model_object("knodel-pool-small"))
    assert error.path == "metadata.name"
    assert error.message == "must not begin with knodel-pool-: such names are reserved for the seeds of WarmPools"
    assert validate_model(None, model_object("knodel-pool")) == []


@pytest.mark.parametrize("spec", [None, [], "x"])
def test_a_spec_is_a_mapping(spec: Any) -> None:
    assert "spec" in {error.path for error in validate_warm_pool(None, {**pool_object(), "spec": spec})}


def test_a_status_can_be_written_whatever_the_spec_says() -> None:
    bad = pool_object(size="x")
    assert validate_warm_pool(bad, {**bad, "status": {"ready": 1}}) == ()
    assert validate_warm_pool(bad, {**bad, "spec": {"size": "y"}})


def test_reading_a_bad_pool_raises_all_faults() -> None:
    with pytest.raises(Invalid, match="WarmPool small") as caught:
        read_warm_pool(pool_object(size="x", min=-1))
    assert len(caught.value.causes) == 2
