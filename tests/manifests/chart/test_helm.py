"""Test the chart with Helm: it renders the objects of kustomize, and each value changes what it names."""

from __future__ import annotations

import functools
import json
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml
from yaml import CSafeLoader

from clusters.base.objects import Key, Object, key_of, name_of, namespace_of
from serving.install.bundle import load_overlay
from tests.cluster.helm import values_of_the_testbed
from tests.manifests.chart.generate import CHART, read_sources
from tests.manifests.chart.templates import KEEP
from tests.support.tools import tool

KUBERNETES = "1.35.4"
NAMESPACE = "knodel-system"
WHOLE = ("namespace.create=true", "poolKey.create=false")
"""Values with which the chart installs exactly the objects of the overlay."""
Identity = tuple[str, Key]


@pytest.fixture(scope="module")
def helm() -> Path:
    """Provide Helm; skip without it."""
    return tool("helm")


def run(helm: Path, *arguments: str | Path, code: int = 0) -> str:
    """Run Helm; return its output."""
    done = subprocess.run([helm, *arguments], capture_output=True, text=True, timeout=60)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


@functools.cache
def rendered(helm: Path, values: tuple[str, ...] = (), code: int = 0) -> str:
    """Return what `helm template` renders with these values, as `--set-json` takes them."""
    given = [word for value in values for word in ("--set-json", value)]
    namespace = ("--namespace", NAMESPACE)
    return run(helm, "template", "knodel", CHART, "--kube-version", KUBERNETES, *namespace, *given, code=code)


def template(helm: Path, *values: str) -> dict[Identity, Object]:
    """Return the objects that the chart renders, by kind and key."""
    return by_identity([obj for obj in yaml.load_all(rendered(helm, values), Loader=CSafeLoader) if obj])


def by_identity(objects: Sequence[Object]) -> dict[Identity, Object]:
    """Return the objects by kind and key; two of one key are a fault."""
    found = {(obj["kind"], key_of(obj)): obj for obj in objects}
    assert len(found) == len(objects)
    return found


def without_keep(obj: Object) -> Object:
    """Return a definition without the one annotation that only Helm reads."""
    if obj["kind"] != "CustomResourceDefinition":
        return obj
    assert obj["metadata"]["annotations"] == {KEEP: "keep"}
    return {**obj, "metadata": {name: one for name, one in obj["metadata"].items() if name != "annotations"}}


def deployment(objects: dict[Identity, Object], component: str) -> Object:
    found: Object = objects["Deployment", Key(NAMESPACE, f"knodel-{component}")]["spec"]
    return found


def test_the_chart_renders_the_objects_of_kustomize(helm: Path) -> None:
    found = {identity: without_keep(obj) for identity, obj in template(helm, *WHOLE).items()}

    assert found == by_identity(load_overlay("production"))


def test_the_values_of_the_tests_on_a_cluster_render_the_overlay_of_the_testbed(helm: Path) -> None:
    values = tuple(f"{name}={json.dumps(value)}" for name, value in values_of_the_testbed().items())
    found = {identity: without_keep(obj) for identity, obj in template(helm, *WHOLE, *values).items()}
    wanted = by_identity(load_overlay("testbed"))
    config: Identity = ("ConfigMap", Key(NAMESPACE, "knodel-config"))
    settings = [yaml.safe_load(objects.pop(config)["data"]["config.yaml"]) for objects in (found, wanted)]

    assert found == wanted
    assert settings[0] == settings[1]  # Helm writes the same YAML in another way


def test_by_default_helm_makes_the_namespace_and_the_chart_the_key_of_pools(helm: Path) -> None:
    by_default, whole = template(helm), template(helm, *WHOLE)

    assert whole.keys() - by_default.keys() == {("Namespace", Key("", NAMESPACE))}
    assert by_default.keys() - whole.keys() == {("Secret", Key(NAMESPACE, "knodel-pool-key"))}
    assert all(by_default[identity] == whole[identity] for identity in by_default.keys() & whole.keys())


def test_the_linter_finds_nothing(helm: Path) -> None:
    said = run(helm, "lint", "--strict", "--kube-version", KUBERNETES, CHART)

    assert "0 chart(s) failed" in said and "WARNING" not in said and "ERROR" not in said


@pytest.mark.parametrize("values", [["replicas=1"], ['settings={"gatway": {}}'], ["controller.replicas=0"]])
def test_helm_refuses_faulty_values_by_the_schema(helm: Path, values: list[str]) -> None:
    assert "values don't meet the specifications of the schema" in rendered(helm, tuple(values), code=1)


def test_old_clusters_are_refused(helm: Path) -> None:
    said = run(helm, "template", "knodel", CHART, "--kube-version", "1.30.0", code=1)

    assert "kubeVersion: >=1." in said


def test_the_image_by_tag_by_digest_and_with_a_secret(helm: Path) -> None:
    digest = f"sha256:{'a' * 64}"
    tagged = template(helm, 'image={"repository": "r.test/k", "tag": "2", "pullPolicy": "Always"}')
    pinned = template(helm, f'image={{"digest": "{digest}", "pullSecrets": [{{"name": "key"}}]}}')

    [container] = deployment(tagged, "controller")["template"]["spec"]["containers"]
    assert (container["image"], container["imagePullPolicy"]) == ("r.test/k:2", "Always")
    spec = deployment(pinned, "router")["template"]["spec"]
    assert spec["containers"][0]["image"] == f"knodel.dev/controller@{digest}"
    assert spec["imagePullSecrets"] == [{"name": "key"}]


def test_values_for_all_pods(helm: Path) -> None:
    tolerations = [{"key": "system", "operator": "Exists"}]
    objects = template(
        helm, 'logLevel="debug"', 'nodeSelector={"pool": "system"}', f"tolerations={json.dumps(tolerations)}",
        'priorityClassName="system-cluster-critical"', 'env=[{"name": "HTTPS_PROXY", "value": "http://proxy:3128"}]',
    )  # fmt: skip

    for component in ("controller", "autoscaler", "eventing", "router"):
        spec = deployment(objects, component)["template"]["spec"]
        [container] = spec["containers"]
        assert container["args"][-2:] == ["--log-level", "debug"]
        assert container["env"][-1] == {"name": "HTTPS_PROXY", "value": "http://proxy:3128"}
        assert (spec["nodeSelector"], spec["tolerations"]) == ({"pool": "system"}, tolerations)
        assert spec["priorityClassName"] == "system-cluster-critical"


def test_replicas_and_resources_of_one_component(helm: Path) -> None:
    resources = {"requests": {"cpu": "1"}, "limits": {"memory": "2Gi"}}
    objects = template(helm, "autoscaler.replicas=1", f"autoscaler.resources={json.dumps(resources)}")

    spec = deployment(objects, "autoscaler")
    assert spec["replicas"] == 1
    assert spec["template"]["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "1", "memory": "256Mi"}
    budgets = {name for kind, (_, name) in objects if kind == "PodDisruptionBudget"}
    assert budgets == {"knodel-controller", "knodel-eventing", "knodel-router"}, "one replica must not block a drain"


def test_settings_are_the_text_of_the_config_map(helm: Path) -> None:
    settings = {"gateway": {"address": "10.0.0.1", "port": 80}, "autoscaler": {"scaleToZeroGrace": "2s"}}
    objects = template(helm, f"settings={json.dumps(settings)}")

    text = objects["ConfigMap", Key(NAMESPACE, "knodel-config")]["data"]["config.yaml"]
    assert yaml.safe_load(text) == settings


@pytest.mark.parametrize("component", ["eventing", "router"])
def test_a_component_can_be_left_out(helm: Path, component: str) -> None:
    objects = template(helm, f"{component}.enabled=false")

    named = {kind for (kind, _), obj in objects.items() if f"knodel-{component}" in json.dumps(obj)}
    assert named <= {"CustomResourceDefinition", "NetworkPolicy"}  # one policy is for the Pods of all components


@pytest.mark.parametrize(
    ("flag", "kind"),
    [
        ("crds.install", "CustomResourceDefinition"),
        ("podDisruptionBudgets.enabled", "PodDisruptionBudget"),
        ("networkPolicies.enabled", "NetworkPolicy"),
        ("priorityClasses.enabled", "PriorityClass"),
    ],
)
def test_kinds_that_can_be_left_out(helm: Path, flag: str, kind: str) -> None:
    every, fewer = template(helm), template(helm, f"{flag}=false")

    assert {identity[0] for identity in every.keys() - fewer.keys()} == {kind}
    assert kind not in {identity[0] for identity in fewer}


def test_definitions_are_removed_with_the_release_on_request(helm: Path) -> None:
    objects = template(helm, "crds.keep=false")

    assert not any("annotations" in obj["metadata"] for (kind, _), obj in objects.items() if kind.startswith("Custom"))


def test_components_are_added_by_flags(helm: Path) -> None:
    flags = ("knativeEventing", "monitoring", "configReaders", "ownerEnforcement")
    plain, sources = template(helm), read_sources()
    objects = template(helm, *(f"{flag}.enabled=true" for flag in flags))

    wanted = by_identity([*sources.knative_eventing, *sources.monitoring, *sources.config_readers])
    dashboards: Identity = ("ConfigMap", Key(NAMESPACE, "knodel-dashboards"))
    assert objects.keys() - plain.keys() == {*wanted, dashboards}
    assert {identity: objects[identity] for identity in wanted} == wanted
    assert {json.loads(text)["title"] for text in objects[dashboards]["data"].values()}
    for name, rules in sources.finalizer_rules.items():
        role: Identity = ("ClusterRole", Key("", name))
        assert objects[role]["rules"] == [*plain[role]["rules"], *rules]


def test_the_dashboard_is_added_with_the_image_and_the_hosts_of_the_values(helm: Path) -> None:
    plain, wanted = template(helm), by_identity(read_sources().dashboard)
    objects = template(helm, 'dashboard={"enabled": true, "hosts": "models.lan"}', 'image.tag="9"')

    assert objects.keys() - plain.keys() == wanted.keys()
    [container] = deployment(objects, "dashboard")["template"]["spec"]["containers"]
    assert container["image"] == "knodel.dev/controller:9"
    assert {"name": "KNODEL_DASHBOARD_HOSTS", "value": "models.lan"} in container["env"]
    others = {identity for identity in wanted if identity[0] != "Deployment"}
    assert {identity: objects[identity] for identity in others} == {identity: wanted[identity] for identity in others}


def test_namespaces_of_models_get_network_policies(helm: Path) -> None:
    plain = template(helm)
    objects = template(helm, 'modelNamespaces=["team-a", "team-b"]')

    added = [objects[identity] for identity in objects.keys() - plain.keys()]
    names = {name_of(obj) for obj in read_sources().model_namespace}
    assert {(namespace_of(obj), name_of(obj)) for obj in added} == {
        (namespace, name) for namespace in ("team-a", "team-b") for name in names
    }


def test_the_notes_name_what_is_left_to_do(helm: Path, tmp_path: Path) -> None:
    """Helm prints notes only with a cluster, so a copy of the chart has them as a value of YAML."""
    chart = Path(shutil.copytree(CHART, tmp_path / "knodel"))
    lines = (CHART / "templates" / "NOTES.txt").read_text().splitlines()
    (chart / "templates" / "notes.yaml").write_text("\n".join(["notes: |", *(f"  {line}" for line in lines)]))

    def notes(*values: str) -> str:
        only = ("--show-only", "templates/notes.yaml", "--namespace", NAMESPACE, "--kube-version", KUBERNETES)
        [found] = [obj["notes"] for obj in yaml.safe_load_all(run(helm, "template", "k", chart, *only, *values)) if obj]
        return str(found)

    assert "settings.gateway.address" in notes()
    done = notes("--set", "settings.gateway.address=10.0.0.1,poolKey.create=false,controller.replicas=1")
    assert "settings.gateway.address" not in done
    assert "Create the Secret" in done and "has one replica" in done
