"""What stands in the way of an event from Knative Eventing to the webhook fits together, and is what Knative takes."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from clusters.base.objects import MODEL, Object, labels_of, name_of
from eventing.mapping.event_source import read_event_source
from eventing.mapping.jobs import JOB_KINDS, RESOURCE_ADD, RESOURCE_UPDATE
from eventing.objects.ports import OidcAuth
from serving.types.event_source import validate_event_source
from tests.manifests.checker import faults
from tests.manifests.generate import MANIFESTS
from tests.support.gomodules import module_folder

EVENTING = "knative.dev/eventing@v0.50.0"
DEFINITIONS = {  # kind: file, and a spec that it does not take
    "ApiServerSource": ("apiserversource", {"mode": 1}),
    "Broker": ("broker", {"delivery": 1}),
    "Trigger": ("trigger", {"subscriber": 1}),
}


def objects_of(component: str) -> list[Object]:
    """Everything in a component's files."""
    folder = MANIFESTS / "components" / component
    files = yaml.safe_load((folder / "kustomization.yaml").read_text())["resources"]
    return [obj for file in files for obj in yaml.safe_load_all((folder / file).read_text())]


def only(kind: str, component: str = "training-jobs") -> Object:
    """The component's one object of that kind."""
    [found] = [obj for obj in objects_of(component) if obj["kind"] == kind]
    return found


@pytest.fixture(scope="module")
def definitions() -> Path:
    """Knative's definitions."""
    return module_folder(EVENTING) / "config" / "core" / "resources"


@pytest.mark.parametrize("kind", DEFINITIONS)
def test_knative_eventing_takes_what_we_ask_of_it(kind: str, definitions: Path) -> None:
    file, wrong = DEFINITIONS[kind]
    definition = yaml.safe_load((definitions / f"{file}.yaml").read_text())
    obj = only(kind)
    versions = {version["name"]: version["schema"]["openAPIV3Schema"] for version in definition["spec"]["versions"]}
    schema = versions[obj["apiVersion"].partition("/")[2]]["properties"]["spec"]

    assert obj.get("spec", {}).keys() <= schema["properties"].keys()
    assert list(faults(schema, obj.get("spec", {}))) == []
    assert list(faults(schema, {**obj.get("spec", {}), **wrong})) == [f".{field}" for field in wrong]


def test_the_event_source_lets_in_the_account_of_the_trigger_for_the_audience_that_it_asks_for() -> None:
    """Eventing names it TRIGGER-oidc-GROUP-KIND, in lower case (pkg/auth/serviceaccount.go)."""
    obj, trigger = only("EventSource"), only("Trigger")
    assert list(validate_event_source(None, obj)) == []
    source = read_event_source({**obj, "metadata": {**obj["metadata"], "namespace": "default"}})
    assert source.mapping is not None
    assert isinstance(source.auth, OidcAuth)
    assert source.auth.audience == trigger["spec"]["subscriber"]["audience"]
    account = f"{name_of(trigger)}-oidc-eventing.knative.dev-trigger"
    assert source.auth.subject == f"system:serviceaccount:default:{account}"
    assert len(account) <= 63  # longer ones are cut and hashed


def test_events_go_from_source_to_broker_to_trigger_to_webhook() -> None:
    api, broker, trigger = only("ApiServerSource"), only("Broker"), only("Trigger")
    assert api["spec"]["sink"]["ref"]["name"] == name_of(broker) == trigger["spec"]["broker"]
    assert trigger["spec"]["subscriber"]["uri"].startswith("http://knodel-eventing.knodel-system.svc.")
    assert trigger["spec"]["subscriber"]["uri"].endswith(f"/events/default/{name_of(only('EventSource'))}")
    assert api["spec"]["mode"] == "Resource"


def test_in_another_namespace_trigger_and_event_source_are_still_each_others(tmp_path: Path) -> None:
    folder = shutil.copytree(MANIFESTS / "components" / "training-jobs", tmp_path / "jobs")
    file = folder / "kustomization.yaml"
    file.write_text(file.read_text().replace("namespace: default\n", "namespace: ml\n"))
    made = subprocess.run(["kubectl", "kustomize", folder], check=True, capture_output=True, text=True).stdout
    found = {obj["kind"]: obj["spec"] for obj in yaml.safe_load_all(made) if "spec" in obj}

    assert found["Trigger"]["subscriber"]["uri"].endswith(".svc.cluster.local/events/ml/training-jobs")
    assert found["EventSource"]["auth"]["oidc"]["subject"].startswith("system:serviceaccount:ml:")


@pytest.mark.parametrize(
    ("type", "passes"),
    [
        (RESOURCE_ADD, True),
        (RESOURCE_UPDATE, True),
        ("dev.knative.apiserver.resource.delete", False),
        ("dev.knative.apiserver.ref.update", False),
    ],
)
def test_the_trigger_lets_through_what_the_preset_reads(type: str, passes: bool) -> None:
    begin, other = only("Trigger")["spec"]["filters"]
    is_through = type.startswith(begin["prefix"]["type"]) and type != other["not"]["exact"]["type"]
    assert is_through == passes


def test_the_source_may_read_the_jobs_that_it_tells_of_and_nothing_else() -> None:
    api, [rule] = only("ApiServerSource"), only("Role")["rules"]
    known = {(job.kind.api_version, job.kind.kind): job.kind for job in JOB_KINDS}
    kinds = [known[one["apiVersion"], one["kind"]] for one in api["spec"]["resources"]]
    assert {(group, plural) for group in rule["apiGroups"] for plural in rule["resources"]} == {
        (kind.group, kind.plural) for kind in kinds
    }
    assert set(rule["verbs"]) == {"get", "list", "watch"}
    [subject] = only("RoleBinding")["subjects"]
    assert subject["name"] == name_of(only("ServiceAccount")) == api["spec"]["serviceAccountName"]


def test_the_webhook_may_list_every_kind_of_job_that_is_known_and_no_more() -> None:
    rules: Sequence[dict[str, Any]] = next(
        obj["rules"] for obj in objects_of("eventing") if name_of(obj) == "knodel-eventing-jobs" and "rules" in obj
    )
    allowed = {(group, plural) for rule in rules for group in rule["apiGroups"] for plural in rule["resources"]}
    assert allowed == {(job.kind.group, job.kind.plural) for job in JOB_KINDS}
    assert {verb for rule in rules for verb in rule["verbs"]} == {"list"}


def test_eventing_may_look_up_the_address_of_a_model() -> None:
    [role] = [obj for obj in objects_of("eventing") if "addressable" in name_of(obj)]
    assert labels_of(role)["duck.knative.dev/addressable"] == "true"
    [rule] = role["rules"]
    assert rule["resources"] == [MODEL.plural, f"{MODEL.plural}/status"]
    assert "status" in rule["resources"][1]
