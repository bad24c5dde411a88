"""Test `doctor --kube-context`: every problem has a remedy, and the checks change nothing."""

from __future__ import annotations

import json
from typing import Any

import pytest

from clusters.base.distribution import VERSION
from clusters.base.objects import Object
from tests.autoscaler.gpu.objects import node as gpu_node
from tests.autoscaler.gpu.objects import pod as gpu_pod
from tests.serving.cli.conftest import Config, Done, Knodel
from tests.serving.cli.kube import CONFIG_PATH, CONTEXT, SETTINGS, FakeApi, Pki, Reply, Seen, failure

HERE = ("--kube-context", CONTEXT)


def deployment(name: str, *, available: bool = True, image: str = f"knodel.dev/controller:{VERSION}") -> Object:
    """Return a Deployment with its condition."""
    condition = {"type": "Available", "status": str(available), "message": "no Pod is ready"}
    return {
        "metadata": {"name": name},
        "spec": {"template": {"spec": {"containers": [{"image": image}]}}},
        "status": {"conditions": [condition]},
    }


def failed(name: str, reason: str) -> Object:
    """Return an object with the condition Ready False."""
    conditions = [{"type": "Ready", "status": "False", "reason": reason}]
    return {"metadata": {"name": name, "namespace": "default"}, "spec": {}, "status": {"conditions": conditions}}


def homeless(name: str) -> Object:
    """Return a Model that serves, but has a replica without a node."""
    said = {"type": "ReplicasStarted", "status": "False", "reason": "Unschedulable", "message": "iris-00001: no room"}
    conditions = [{"type": "Ready", "status": "True"}, said]
    traffic = [{"revision": "iris-00001", "percent": 100}]
    return {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {},
        "status": {"conditions": conditions, "traffic": traffic},
    }


def waiting(reason: str) -> Object:
    """Return a Pod whose container waits."""
    statuses = [{"image": "registry.test/server:1", "state": {"waiting": {"reason": reason}}}]
    return {"metadata": {"name": "p", "namespace": "default"}, "status": {"containerStatuses": statuses}}


class Lab:
    """A cluster for `doctor`; tests break its parts."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.denied: tuple[str, str] = ("", "")
        self.groups = {"serving.knative.dev/v1": ["revisions"], "knodel.dev/v1alpha1": ["models"]}
        self.deployments: dict[str, list[Object] | Reply] = {
            "knative-serving": [deployment(name) for name in ("controller", "webhook", "activator", "autoscaler")],
            "knodel-system": [deployment("knodel-controller"), deployment("knodel-autoscaler")],
        }
        self.features: dict[str, str] = {
            "tag-header-based-routing": "enabled",
            "metrics-protocol": "prometheus",
            "allow-zero-initial-scale": "true",
            "kubernetes.podspec-persistent-volume-claim": "enabled",
        }
        self.deployed: dict[str, list[Object] | Reply] = {
            "models": [], "pods": [], "eventsources": [], "nodes": [],
            "priorityclasses": [{"metadata": {"name": name}} for name in ("knodel-serving", "knodel-training")],
        }  # fmt: skip
        self.more_settings = ""
        self.minor = "35"
        self.settings: Reply | None = None

    def __call__(self, seen: Seen) -> Reply:
        words = seen.path.strip("/").split("/")
        if seen.path == "/version":
            return Reply(200, {"major": "1", "minor": self.minor, "gitVersion": f"v1.{self.minor}.0"})
        if words[-1] == "selfsubjectaccessreviews":
            asked = seen.body["spec"]["resourceAttributes"]
            return Reply(201, {"status": {"allowed": (asked["verb"], asked["resource"]) != self.denied}})
        if words[-1] == "deployments":
            found = self.deployments[words[4]]
            return found if isinstance(found, Reply) else Reply(200, {"items": found})
        if words[-1] in self.deployed:
            items = self.deployed[words[-1]]
            return items if isinstance(items, Reply) else Reply(200, {"items": items})
        if words[-1].startswith("config-"):
            return Reply(200, {"metadata": {"name": words[-1]}, "data": self.features})
        if seen.path == CONFIG_PATH:
            data = {"config.yaml": SETTINGS.format(port=self.port) + self.more_settings}
            return self.settings or Reply(200, {"metadata": {"name": "knodel-config"}, "data": data})
        known = self.groups.get("/".join(words[1:]))
        if known is None:
            return Reply(404, text="404 page not found\n")
        return Reply(200, {"resources": [{"name": name} for name in known]})


@pytest.fixture
def lab(api: FakeApi, ingress: FakeApi, config: Config) -> Lab:
    """Provide a cluster without problems."""
    made = Lab(ingress.port)
    api.script = made
    return made


def problems(done: Done) -> dict[str, Object]:
    """Return check → finding for the problems."""
    return {finding["check"]: finding for finding in json.loads(done.out) if not finding["ok"]}


def test_a_cluster_on_which_all_is_well_has_no_problem(knodel: Knodel, lab: Lab, api: FakeApi) -> None:
    done = knodel("doctor", "-o", "json", *HERE)

    assert (done.code, problems(done)) == (0, {})
    assert {seen.method for seen in api.seen} == {"GET", "POST"}
    assert all(seen.path.endswith("selfsubjectaccessreviews") for seen in api.seen if seen.method == "POST")
    assert "Kubernetes" in knodel("doctor", *HERE).out


@pytest.mark.parametrize(
    ("breaking", "check", "words"),
    [
        (lambda lab: setattr(lab, "minor", "30+"), "Kubernetes", "upgrade"),
        (lambda lab: setattr(lab, "denied", ("patch", "models")), "rights", "patch models.knodel.dev (deploy, traffic"),
        (lambda lab: setattr(lab, "denied", ("get", "pods")), "rights", "get pods/log (logs)"),
        (lambda lab: lab.groups.pop("serving.knative.dev/v1"), "Knative Serving", "install Knative Serving"),
        (lambda lab: lab.groups.pop("knodel.dev/v1alpha1"), "Model", "knodel install --kube-context lab"),
        (lambda lab: lab.deployments["knative-serving"].pop(), "Knative's Deployments", "no Deployment autoscaler"),
        (
            lambda lab: lab.deployments.update({"knodel-system": [deployment("knodel-controller", available=False)]}),
            "Knodel",
            "knodel-controller (no Pod is ready)",
        ),
        (lambda lab: lab.deployments.update({"knodel-system": []}), "Knodel", "knodel install"),
        (
            lambda lab: lab.deployments.update({"knodel-system": [deployment("knodel-controller", image="x/y:9.9")]}),
            "version",
            "version 9.9, more than one minor version",
        ),
        (
            lambda lab: lab.features.pop("tag-header-based-routing"),
            "Knative's tag-header-based-routing",
            "ConfigMap config-features",
        ),
        (
            lambda lab: lab.features.update({"metrics-protocol": "grpc"}),
            "Knative's metrics-protocol",
            "ConfigMap config-observability of namespace knative-serving and restart its Deployment activator",
        ),
        (
            lambda lab: lab.features.pop("allow-zero-initial-scale"),
            "Knative's allow-zero-initial-scale",
            "ConfigMap config-autoscaler",
        ),
        (
            lambda lab: lab.features.update({"kubernetes.podspec-volumes-emptydir": "disabled"}),
            "Knative's kubernetes.podspec-volumes-emptydir",
            "scratch",
        ),
        (lambda lab: lab.deployed.update(models=[failed("iris", "LoadFailed")]), "models", "default/iris (LoadFailed)"),
        (
            lambda lab: lab.deployed.update(models=[homeless("iris")]),
            "replicas",
            "default/iris (Unschedulable: iris-00001: no room)",
        ),
        (
            lambda lab: lab.deployed.update(pods=[waiting("ImagePullBackOff")]),
            "images",
            "registry.test/server:1 (default/p",
        ),
        (lambda lab: lab.deployed.update(eventsources=[failed("ci", "NoSecret")]), "events", "default/ci (NoSecret)"),
        (
            lambda lab: lab.deployed.update(models=failure(500, "InternalError", "etcd is gone")),
            "models",
            "etcd is gone",
        ),
        (lambda lab: setattr(lab, "port", 9), "ingress", "gateway.address"),
        (lambda lab: setattr(lab, "port", 0), "settings", "correct it"),
    ],
)
def test_what_is_wrong_with_a_cluster_has_its_remedy(
    knodel: Knodel, lab: Lab, breaking: Any, check: str, words: str
) -> None:
    breaking(lab)

    done = knodel("doctor", "-o", "json", *HERE)

    found = problems(done)
    assert (done.code, list(found)) == (1, [check])
    assert found[check]["remedy"]
    assert words in f"{found[check]['message']} {found[check]['remedy']}"


def test_what_the_caller_may_not_see_is_no_problem_and_is_said(knodel: Knodel, lab: Lab) -> None:
    refusal = failure(403, "Forbidden", 'User "ann" cannot list deployments')
    lab.deployments = {"knative-serving": refusal, "knodel-system": refusal}
    lab.settings = failure(403, "Forbidden", 'User "ann" cannot get configmaps')
    lab.deployed["pods"] = failure(403, "Forbidden", 'User "ann" cannot list pods')

    done = knodel("doctor", "-o", "json", *HERE)

    unseen = [finding for finding in json.loads(done.out) if not finding["seen"]]
    assert problems(done) == {}
    assert [finding["check"] for finding in unseen] == ["Knative's Deployments", "Knodel", "settings", "images"]
    assert all('User "ann" cannot' in finding["message"] and not finding["remedy"] for finding in unseen)
    assert knodel("doctor", *HERE).out.count("   skipped   ") == len(unseen)


def test_rights_that_are_missing_name_the_roles_that_give_them(knodel: Knodel, lab: Lab) -> None:
    lab.denied = ("get", "configmaps")

    (missing,) = problems(knodel("doctor", "-o", "json", *HERE)).values()

    assert (
        missing["remedy"]
        == "ask the administrator of the cluster for Role knodel-config-reader in namespace knodel-system"
    )


@pytest.mark.parametrize("reply", [failure(401, "Unauthorized", "Unauthorized"), Reply(502, text="<html>")])
def test_an_api_server_that_does_not_answer_well_is_the_only_finding(
    knodel: Knodel, api: FakeApi, config: Config, reply: Reply
) -> None:
    api.script = lambda _: reply

    done = knodel("doctor", "-o", "json", *HERE)

    assert done.code == 1
    assert list(problems(done)) == ["API server"]
    assert problems(done)["API server"]["remedy"]


def test_a_certificate_that_is_not_trusted_is_a_finding(knodel: Knodel, pki: Pki, config: Config) -> None:
    config(**{"certificate-authority": str(pki.stranger)})

    done = knodel("doctor", "-o", "json", *HERE)

    assert "certificate-authority" in problems(done)["API server"]["remedy"]


def gpu_model(**spec: Any) -> Object:
    """Return a Model with a GPU that serves."""
    metadata = {"name": "chat", "namespace": "default"}
    head = {"apiVersion": "knodel.dev/v1alpha1", "kind": "Model", "metadata": metadata}
    return {**head, "spec": {"storageUri": "s3://box/chat", "resources": {"gpu": 1}, **spec}, "status": {}}


def gpu_findings(knodel: Knodel) -> dict[str, Object]:
    """Return check → finding for the checks about GPUs."""
    found = {one["check"]: one for one in json.loads(knodel("doctor", "-o", "json", *HERE).out)}
    names = ("priority classes", "GPU nodes", "podspec-affinity", "priorityclassname")
    return {check: one for check, one in found.items() if check.endswith(names)}


def test_without_models_with_gpus_nothing_is_said_about_them(knodel: Knodel, lab: Lab) -> None:
    lab.deployed["models"] = [gpu_model(resources={"cpu": "1"})]
    assert gpu_findings(knodel) == {}


def test_a_priority_that_the_scheduler_does_not_know_is_advice(knodel: Knodel, lab: Lab) -> None:
    lab.deployed["models"] = [gpu_model(priority=5)]
    found = gpu_findings(knodel)["priority classes"]
    assert found["ok"]
    assert "does not know the priority of default/chat" in found["message"]
    assert "server.gpuPriorityClass: knodel-serving" in found["remedy"]


def test_flags_and_priority_classes_that_models_with_gpus_need(knodel: Knodel, lab: Lab) -> None:
    lab.deployed["models"] = [gpu_model(resources={"gpu": 1, "gpuTypes": ["NVIDIA-L4"]})]
    lab.more_settings = "\nserver: {gpuPriorityClass: knodel-serving}\n"
    lab.deployed["priorityclasses"] = []
    found = gpu_findings(knodel)
    assert [one["ok"] for one in found.values()] == [False, False, False, True]
    assert "podspec-affinity" in found["Knative's kubernetes.podspec-affinity"]["remedy"]
    assert "no PriorityClass knodel-serving" in found["priority classes"]["message"]
    assert "knodel install" in found["priority classes"]["remedy"]
    lab.features |= {"kubernetes.podspec-affinity": "enabled", "kubernetes.podspec-priorityclassname": "enabled"}
    lab.deployed["priorityclasses"] = [{"metadata": {"name": name}} for name in ("knodel-serving", "knodel-training")]
    assert all(one["ok"] for one in gpu_findings(knodel).values())


def test_gpus_that_are_spread_over_nodes_are_advice(knodel: Knodel, lab: Lab) -> None:
    lab.deployed["models"] = [gpu_model()]
    lab.deployed["nodes"] = [gpu_node("a", 4), gpu_node("b", 4)]
    lab.deployed["pods"] = [gpu_pod("one", "a", 2), gpu_pod("two", "b", 1)]
    found = gpu_findings(knodel)["GPU nodes"]
    assert found["ok"]
    assert found["message"] == "Pods hold GPUs on 2 nodes, and could do with 1: b"
    assert "MostAllocated" in found["remedy"]
    lab.deployed["pods"] = [gpu_pod("one", "a", 2), gpu_pod("two", "a", 1)]
    assert gpu_findings(knodel)["GPU nodes"]["message"] == "Pods hold GPUs on 1 of 2 nodes"
