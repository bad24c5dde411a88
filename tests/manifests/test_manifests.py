"""Every overlay: what is installed is safe, complete and minimal, as a reviewer would look at it."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from autoscaler.main import PROGRAM as AUTOSCALER
from clusters.base.distribution import VERSION
from clusters.base.objects import (
    CONFIG_MAP,
    DEPLOYMENT,
    MODEL,
    NAMESPACE,
    WARM_POOL,
    Object,
    labels_of,
    name_of,
    namespace_of,
)
from clusters.base.quantities import parse_quantity
from clusters.runtime.manager.options import METRICS_PORT, PROBE_PORT, parse_options
from serving.install import pool_key
from serving.install.bundle import LABEL, OVERLAYS, PART_OF, load_overlay, rendered_path
from serving.install.configuration import settings_of
from serving.install.kinds import CORE_SERVICE, CRD, kind_of
from serving.makers.knative_flags import ACTIVATOR_METRICS, FLAGS, ZERO_INITIAL_SCALE
from serving.makers.knative_flags import NAMESPACE as KNATIVE_NAMESPACE
from serving.platform.router_main import DRAIN, LEAVING
from serving.router.app import BODIES
from serving.types.settings.settings import Settings
from tests.manifests.generate import MANIFESTS, RENDERED, head_of, split_head

SYSTEM = "knodel-system"
COMPONENTS = ("autoscaler", "controller", "eventing", "router")
MODULES = {
    "autoscaler": "autoscaler.main",
    "controller": "serving.platform.main",
    "eventing": "serving.platform.webhook_main",
    "router": "serving.platform.router_main",
}
OWN_FILES = {"autoscaler": AUTOSCALER.files}
FORBIDDEN_VERBS = {"*", "escalate", "bind", "impersonate"}
FORBIDDEN_RESOURCES = {"*", "secrets", "pods/exec", "nodes/proxy", "serviceaccounts/token"}


@pytest.fixture(scope="module", params=OVERLAYS)
def overlay(request: pytest.FixtureRequest) -> str:
    """Each overlay in turn."""
    return str(request.param)


@pytest.fixture(scope="module")
def objects(overlay: str) -> list[Object]:
    """Its objects, which no test changes."""
    return load_overlay(overlay)


def of_kind(objects: list[Object], kind: str) -> list[Object]:
    return [obj for obj in objects if obj["kind"] == kind]


def pods(objects: list[Object]) -> dict[str, Object]:
    """The Pod template of each component."""
    found = {name_of(obj).removeprefix("knodel-"): obj["spec"]["template"] for obj in of_kind(objects, "Deployment")}
    assert tuple(sorted(found)) == COMPONENTS
    return found


@pytest.mark.parametrize("name", RENDERED)
def test_the_rendered_file_is_what_its_sources_make(name: str) -> None:
    head, body = split_head(rendered_path(name).read_text())
    assert head == head_of(name, body), f"{rendered_path(name)} is old or was edited: run `make manifests`"


def test_all_yaml_files_are_taken_by_the_loader_and_bear_our_label(objects: list[Object]) -> None:
    for obj in objects:
        assert labels_of(obj)[LABEL] == PART_OF, name_of(obj)
        assert namespace_of(obj) in ("", SYSTEM, KNATIVE_NAMESPACE), name_of(obj)


def test_what_others_need_comes_first(objects: list[Object]) -> None:
    kinds = [kind_of(obj) for obj in objects]
    assert kinds[:5] == [NAMESPACE, CRD, CRD, CRD, CRD]
    assert set(kinds[-len(COMPONENTS) :]) == {DEPLOYMENT}
    assert kinds.index(CONFIG_MAP) < kinds.index(DEPLOYMENT)


def test_images_are_those_of_this_release(overlay: str, objects: list[Object]) -> None:
    image = "dev.local/knodel-controller" if overlay == "testbed" else "knodel.dev/controller"
    for template in pods(objects).values():
        [container] = template["spec"]["containers"]
        assert container["image"] == f"{image}:{VERSION}"


def test_every_pod_is_restricted(objects: list[Object]) -> None:
    """https://kubernetes.io/docs/concepts/security/pod-security-standards/#restricted, and a read-only root."""
    [namespace] = of_kind(objects, "Namespace")
    assert labels_of(namespace)["pod-security.kubernetes.io/enforce"] == "restricted"
    for template in pods(objects).values():
        spec = template["spec"]
        assert not {"hostNetwork", "hostPID", "hostIPC", "initContainers"} & spec.keys()
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["runAsUser"] > 0
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert spec["enableServiceLinks"] is False
        assert all({"configMap", "emptyDir", "secret"} & volume.keys() for volume in spec["volumes"])
        [container] = spec["containers"]
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert not any("hostPort" in port for port in container["ports"])


def test_every_container_starts_a_module_that_is_there_with_options_that_it_takes(objects: list[Object]) -> None:
    for component, template in pods(objects).items():
        [container] = template["spec"]["containers"]
        assert container["command"] == ["python", "-m", MODULES[component]]
        assert callable(importlib.import_module(MODULES[component]).main)
        options = parse_options(component, "", container.get("args", []), {}, OWN_FILES.get(component, {}))
        assert (options.probe_port, options.metrics_port) == (PROBE_PORT, METRICS_PORT)
        ports = {port["name"]: port["containerPort"] for port in container["ports"]}
        assert (ports["probes"], ports["metrics"]) == (PROBE_PORT, METRICS_PORT)
        assert {one["httpGet"]["path"] for one in probes(container)} == {"/healthz", "/readyz"}
        assert {one["httpGet"]["port"] for one in probes(container)} == {"probes"}


def probes(container: Object) -> list[Object]:
    return [container[name] for name in ("startupProbe", "livenessProbe", "readinessProbe")]


def test_settings_are_mounted_where_they_are_read(objects: list[Object]) -> None:
    for component in ("controller", "autoscaler"):
        spec = pods(objects)[component]["spec"]
        [container] = spec["containers"]
        folders = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
        [volume] = [one for one in spec["volumes"] if "configMap" in one]
        assert volume["configMap"] == {"name": "knodel-config"}
        assert container["args"][:2] == ["--config", f"{folders[volume['name']]}/config.yaml"]


def test_the_autoscaler_alone_has_the_key_of_warm_pools_and_does_without(objects: list[Object]) -> None:
    secrets = {
        name: [one["secret"] for one in pod["spec"]["volumes"] if "secret" in one]
        for name, pod in pods(objects).items()
    }
    assert secrets.pop("autoscaler") == [{"secretName": pool_key.NAME, "optional": True, "defaultMode": 0o440}]
    assert not any(secrets.values())
    [container] = pods(objects)["autoscaler"]["spec"]["containers"]
    folders = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert container["args"][2:] == ["--pool-key", f"{folders['pool-key']}/{pool_key.KEY}"]


def test_two_replicas_and_a_disruption_budget_but_at_the_edge(overlay: str, objects: list[Object]) -> None:
    replicas = {obj["spec"]["replicas"] for obj in of_kind(objects, "Deployment")}
    budgets = of_kind(objects, "PodDisruptionBudget")
    if overlay == "edge":
        assert (replicas, budgets) == ({1}, [])
        return
    assert replicas == {2}
    selected = [obj["spec"]["selector"]["matchLabels"]["app.kubernetes.io/name"] for obj in budgets]
    assert sorted(selected) == [f"knodel-{component}" for component in COMPONENTS]
    assert {obj["spec"]["minAvailable"] for obj in budgets} == {1}


def test_selectors_find_the_pods(objects: list[Object]) -> None:
    for deployment in of_kind(objects, "Deployment"):
        wanted = deployment["spec"]["selector"]["matchLabels"]
        labels = deployment["spec"]["template"]["metadata"]["labels"]
        assert wanted.items() <= labels.items()
        assert labels[LABEL] == PART_OF  # the policies select by it
    services = {name_of(obj): obj["spec"] for obj in objects if kind_of(obj) is CORE_SERVICE}
    assert sorted(services) == ["knodel-eventing", "knodel-router"]
    for name, service in services.items():
        pod = pods(objects)[name.removeprefix("knodel-")]
        assert service["selector"].items() <= pod["metadata"]["labels"].items()
        names = {port["name"] for port in pod["spec"]["containers"][0]["ports"]}
        assert {port["targetPort"] for port in service["ports"]} <= names


def test_settings_are_understood(overlay: str, objects: list[Object]) -> None:
    [config] = [obj for obj in objects if kind_of(obj) is CONFIG_MAP]
    settings = settings_of(config)
    if overlay == "testbed":
        assert settings.server.image == f"dev.local/knodel-server:{VERSION}"
    else:
        assert settings == Settings()


def test_no_right_is_wide(objects: list[Object]) -> None:
    for role in (*of_kind(objects, "ClusterRole"), *of_kind(objects, "Role")):
        for rule in role["rules"]:
            assert not FORBIDDEN_VERBS & set(rule["verbs"]), name_of(role)
            if rule["verbs"] != ["create"] or rule["resources"] != ["secrets"]:  # one that nobody reads: groups' tokens
                assert not FORBIDDEN_RESOURCES & set(rule["resources"]), name_of(role)
            assert "*" not in rule["apiGroups"], name_of(role)


def test_the_autoscaler_writes_no_deployments_and_the_controller_reads_no_config_but_knatives(
    objects: list[Object],
) -> None:
    rules = {name_of(role): role["rules"] for role in of_kind(objects, "ClusterRole")}
    for rule in rules["knodel-autoscaler"]:
        if "deployments" in rule["resources"]:
            assert set(rule["verbs"]) <= {"get", "list", "watch"}
    [role] = [obj for obj in of_kind(objects, "Role") if namespace_of(obj) == KNATIVE_NAMESPACE]
    [rule] = role["rules"]
    assert rule["verbs"] == ["get"]
    of_models = set(FLAGS) - {ACTIVATOR_METRICS, ZERO_INITIAL_SCALE}  # no Model is refused for want of these
    assert set(rule["resourceNames"]) == {flag.configmap for flag in of_models}


def test_every_binding_joins_a_role_and_an_account_that_are_there(objects: list[Object]) -> None:
    there = {(obj["kind"], namespace_of(obj), name_of(obj)) for obj in objects}
    bound = set()
    for binding in (*of_kind(objects, "ClusterRoleBinding"), *of_kind(objects, "RoleBinding")):
        reference = binding["roleRef"]
        where = namespace_of(binding) if reference["kind"] == "Role" else ""
        assert (reference["kind"], where, reference["name"]) in there
        bound.add((reference["kind"], where, reference["name"]))
        for subject in binding["subjects"]:
            assert (subject["kind"], subject["namespace"], subject["name"]) in there
    aggregated = {("ClusterRole", "", f"knodel-namespaced-{name}") for name in ("admin", "edit", "view")}
    offered = {("Role", SYSTEM, "knodel-config-reader")}  # to be bound by the cluster's owner
    assert {key for key in there if key[0] in ("ClusterRole", "Role")} == bound | aggregated | offered


def test_no_right_is_given_to_everybody(objects: list[Object]) -> None:
    subjects = [subject for obj in objects for subject in obj.get("subjects", ())]
    assert {subject["kind"] for subject in subjects} == {"ServiceAccount"}


def test_the_webhook_may_record_events_and_change_nothing(objects: list[Object]) -> None:
    bindings = [*of_kind(objects, "ClusterRoleBinding"), *of_kind(objects, "RoleBinding")]
    bound = [one for one in bindings if "knodel-eventing" in {subject["name"] for subject in one["subjects"]}]
    assert [(one["kind"], one["roleRef"]["name"]) for one in bound] == [("ClusterRoleBinding", "knodel-eventing")]
    [role] = [obj for obj in of_kind(objects, "ClusterRole") if name_of(obj) == "knodel-eventing"]
    rights = {(resource, verb) for rule in role["rules"] for resource in rule["resources"] for verb in rule["verbs"]}
    of_sources, of_events = {("eventsources", "list"), ("eventsources", "watch")}, {"create", "get"}
    assert rights == of_sources | {("modelevents", verb) for verb in of_events}


def test_the_router_may_only_read_models_and_finishes_streams(objects: list[Object]) -> None:
    bindings = [*of_kind(objects, "ClusterRoleBinding"), *of_kind(objects, "RoleBinding")]
    bound = [one for one in bindings if "knodel-router" in {subject["name"] for subject in one["subjects"]}]
    assert [(one["kind"], one["roleRef"]["name"]) for one in bound] == [("ClusterRoleBinding", "knodel-router")]
    [role] = [obj for obj in of_kind(objects, "ClusterRole") if name_of(obj) == "knodel-router"]
    assert role["rules"] == [{"apiGroups": ["knodel.dev"], "resources": ["models"], "verbs": ["list", "watch"]}]
    spec = pods(objects)["router"]["spec"]
    assert spec["terminationGracePeriodSeconds"] > LEAVING + DRAIN
    limits = spec["containers"][0]["resources"].get("limits", {})
    assert parse_quantity(limits.get("memory", "1Gi")) > 2 * BODIES, "a body is held, and read into the client's buffer"


def test_who_may_do_what_with_models_follows_who_may_do_what_in_the_namespace(objects: list[Object]) -> None:
    for name, verbs in (("admin", {"create", "delete"}), ("edit", {"create", "delete"}), ("view", {"get", "list"})):
        [role] = [obj for obj in of_kind(objects, "ClusterRole") if name_of(obj) == f"knodel-namespaced-{name}"]
        assert labels_of(role)[f"rbac.authorization.k8s.io/aggregate-to-{name}"] == "true"
        [rule, *_] = [rule for rule in role["rules"] if MODEL.plural in rule["resources"]]
        assert WARM_POOL.plural in rule["resources"]
        assert verbs <= set(rule["verbs"])
        assert ("create" in rule["verbs"]) == (name != "view")


def test_nothing_comes_in_or_goes_out_but_what_a_policy_names(objects: list[Object]) -> None:
    policies = {name_of(obj): obj["spec"] for obj in of_kind(objects, "NetworkPolicy")}
    assert policies["default-deny"] == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    names = set(named_ports(objects))
    for spec in policies.values():
        for rule in (*spec.get("ingress", ()), *spec.get("egress", ())):
            assert rule["ports"], "a rule without ports is open"
            assert all(isinstance(port["port"], int) or port["port"] in names for port in rule["ports"])
            for peer in rule.get("to", ()):
                block = peer.get("ipBlock", {})
                assert not block or block["except"], "the metadata service gives out credentials"


def named_ports(objects: list[Object]) -> Iterator[str]:
    for template in pods(objects).values():
        yield from (port["name"] for port in template["spec"]["containers"][0]["ports"])


def test_components_are_readable_kustomizations() -> None:
    for path in (MANIFESTS / "components").glob("*/kustomization.yaml"):
        content: Any = yaml.safe_load(path.read_text())
        assert content["kind"] in ("Component", "Kustomization")
        for resource in content.get("resources", ()):
            assert (path.parent / resource).exists()


def test_metrics_of_models_keep_their_namespace() -> None:
    """A scrape gives the namespace of the Pod; without honorLabels that of the Model becomes `exported_namespace`."""
    text = (MANIFESTS / "components" / "monitoring" / "pod-monitors.yaml").read_text()
    controllers, models = yaml.safe_load_all(text)
    assert [one["honorLabels"] for one in controllers["spec"]["podMetricsEndpoints"]] == [True]
    assert not [
        one for one in models["spec"]["podMetricsEndpoints"] if one.get("honorLabels")
    ]  # models are not trusted
