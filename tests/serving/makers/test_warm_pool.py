"""The seed of a WarmPool; its members can serve a Model with equal fields."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from autoscaler.warmpool.claims.classes import pool_class
from autoscaler.warmpool.claims.marks import ANNOTATION_LOAD, LABEL_SEED
from clusters.base.objects import CONFIGURATION, Key, Object, annotations_of, controller_of, labels_of, name_of
from serving.makers.knative import make_templates
from serving.makers.warm_pool import make_seed, pool_of_seed
from serving.modelserver.base.options import DEFAULT_POOL_FORMAT
from serving.types.annotations import LABEL_MODEL
from serving.types.faults import CODE_FORMATS, FORMATS
from serving.types.settings.settings import ServerSettings, Settings
from tests.serving.models import VARIANTS, model
from tests.serving.pools import pool
from tests.support.knative_webhook.annotation_rules import ALLOW_ZERO_INITIAL_SCALE
from tests.support.knative_webhook.validation import KNATIVE_FEATURES, validators

SETTINGS = Settings(server=ServerSettings(allow_hosts="models.internal"))
CLASS_FIELDS: list[Object] = [
    {},
    {"modelFormat": "onnx"},
    {"resources": {"cpu": "250m", "memory": "256Mi"}},
    {"resources": {"gpu": 1, "gpuTypes": ["NVIDIA-L4"]}},
    {"resources": {"gpuFraction": 0.25}},
    {"containerConcurrency": 3},
    {"timeout": "90s"},
    {"serviceAccountName": "models"},
    {"storage": {"secretRef": {"name": "keys"}}},
]


def seed(**spec: Any) -> Object:
    return make_seed(pool(**spec), SETTINGS)


def pod_spec(configuration: Object) -> Object:
    """The RevisionSpec without the container's arguments."""
    spec: Object = copy.deepcopy(configuration["spec"]["template"]["spec"])
    del spec["containers"][0]["args"]
    return spec


def arguments(configuration: Object) -> list[str]:
    return list(configuration["spec"]["template"]["spec"]["containers"][0]["args"])


@pytest.mark.parametrize("fields", CLASS_FIELDS, ids=str)
def test_a_model_with_equal_fields_has_an_equal_pod_but_for_the_arguments(fields: Object) -> None:
    [template] = make_templates(model(**fields, digest="sha256:" + "0" * 64), SETTINGS).values()
    assert pod_spec(seed(template=fields)) == pod_spec({"spec": {"template": template}})


@pytest.mark.parametrize("fields", CLASS_FIELDS, ids=str)
def test_equal_fields_are_one_class_and_what_a_deployment_tells_in_arguments_alone_is_none_of_it(
    fields: Object,
) -> None:
    [template] = make_templates(model(**fields), SETTINGS).values()
    made = seed(template=fields)["spec"]["template"]
    assert pool_class(made) == pool_class(template)
    assert pool_class(made) != pool_class(seed(template={"resources": {"cpu": "7"}})["spec"]["template"])


def test_queue_proxy_of_a_model_and_of_a_member_answers_before_the_end_of_a_request() -> None:
    key = "features.knative.dev/http-full-duplex"
    for made in (*make_templates(model(), SETTINGS).values(), seed()["spec"]["template"]):
        assert made["metadata"]["annotations"][key] == "Enabled"


@pytest.mark.parametrize("fields", CLASS_FIELDS[2:], ids=str)
def test_other_fields_make_another_class(fields: Object) -> None:
    one, other = (made["spec"]["template"] for made in (seed(template=fields), seed()))
    assert pool_class(one) != pool_class(other)


def test_a_seed_waits_to_be_told_what_to_load() -> None:
    assert arguments(seed()) == ["--pool", "--timeout", "300", "--cpu", "1"]
    fields = {"modelFormat": "onnx", "timeout": "90s", "resources": {"cpu": "50m"}}
    assert arguments(seed(template=fields)) == ["--pool", "--format", "onnx", "--timeout", "90", "--cpu", "0.05"]


@pytest.mark.parametrize("name", FORMATS)
def test_a_member_fits_models_of_its_own_format_which_is_onnx_where_nothing_is_said(name: str) -> None:
    [template] = make_templates(model(modelFormat=name), SETTINGS).values()
    [silent] = make_templates(model(), SETTINGS).values()
    made = seed(template={"modelFormat": name})

    assert pool_class(made["spec"]["template"]) == pool_class(template)
    assert (pool_class(made["spec"]["template"]) == pool_class(silent)) == (name == DEFAULT_POOL_FORMAT)
    assert ("--allow-code" in arguments(made)) == (name in CODE_FORMATS)


def test_a_seed_has_no_replica_and_is_marked_and_owned() -> None:
    made = seed()
    template = made["spec"]["template"]["metadata"]
    assert name_of(made) == "knodel-pool-small"
    assert template["labels"] == {LABEL_SEED: "small"} == labels_of(made)
    assert template["annotations"] == {
        "autoscaling.knative.dev/class": "gpu.autoscaling.knodel.dev",
        "autoscaling.knative.dev/initial-scale": "0",
        "features.knative.dev/http-full-duplex": "Enabled",
    }
    owner = controller_of(made)
    assert owner is not None
    assert (owner["kind"], owner["name"], owner["uid"]) == ("WarmPool", "small", "p1")


def test_a_seed_is_no_model_and_nothing_can_be_claimed_for_it() -> None:
    text = json.dumps(seed())
    assert LABEL_MODEL not in text
    assert ANNOTATION_LOAD not in text


@pytest.mark.parametrize(
    "change", [{"size": 3}, {"min": 2}, {"max": 9}, {"maxAge": "1h"}, {"budget": {"cpu": 4}}], ids=str
)
def test_size_age_and_budget_make_no_revision(change: dict[str, Any]) -> None:
    assert seed(**change) == seed()


def test_another_server_image_makes_a_revision() -> None:
    other = Settings(server=ServerSettings(image="knodel.dev/server:9", allow_hosts="models.internal"))
    assert make_seed(pool(), other)["spec"] != seed()["spec"]
    assert annotations_of(make_seed(pool(), other)) != annotations_of(seed())


def test_knative_takes_a_seed_where_it_allows_the_initial_scale_and_names_it_where_not() -> None:
    taken = validators(KNATIVE_FEATURES | {ALLOW_ZERO_INITIAL_SCALE})[CONFIGURATION]
    assert taken(None, seed()) == ()
    [fault] = validators()[CONFIGURATION](None, seed())
    assert "initial-scale" in f"{fault.path}: {fault.message}"


def test_the_pool_of_a_seed_is_found_by_its_name() -> None:
    assert pool_of_seed(Key("team", "knodel-pool-small")) == Key("team", "small")
    assert pool_of_seed(Key("team", "knodel-pool-")) is None
    assert pool_of_seed(Key("team", "small")) is None


def load_parameters(**spec: Any) -> list[Object]:
    """Return the parameters of the load call for each template of a Model."""
    templates = make_templates(model(**spec), SETTINGS).values()
    return [json.loads(one["metadata"]["annotations"][ANNOTATION_LOAD]) for one in templates]


def test_every_template_of_a_model_tells_the_load_call_what_its_arguments_tell() -> None:
    digest = "sha256:" + "0f" * 32
    [said] = load_parameters(modelFormat="onnx", digest=digest, containerConcurrency=2, resources={"cpu": "50m"})
    assert said == {
        "name": "magika",
        "storageUri": "file:///models/magika",
        "digest": digest,
        "modelFormat": "onnx",
        "slots": 2,
        "timeout": 300,
        "cpu": 0.05,
    }


def test_a_load_call_leaves_out_what_is_empty_and_knows_each_variants_cores() -> None:
    [said] = load_parameters()
    assert set(said) == {"name", "storageUri", "timeout", "cpu"}
    assert [said["cpu"] for said in load_parameters(variants=VARIANTS)] == [2, 1]


def test_a_load_call_says_the_uri_as_it_is_for_no_kubelet_expands_it() -> None:
    [said] = load_parameters(storageUri="https://host/$(HOME)")
    assert said["storageUri"] == "https://host/$(HOME)"
