"""What Knative's tests need of a cluster while they run: namespaces, the ingress' address, the class by default."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Final

from tests.testbed import images, upstream, waiting
from tests.testbed.addresses import INGRESS_ADDRESS
from tests.testbed.knative import NAMESPACE, SERVING
from tests.testbed.kubectl import Kubectl
from tests.testbed.upstream import Document
from tests.testbed.versions import CONFORMANCE, TEST_PREFIX

TESTS: Final = "serving-tests"
NAMESPACES: Final = (TESTS, "serving-tests-alt")
"""Upstream's names; `test/config` of its sources has others too, for tests that are not run here."""
CONFIG_MAP: Final = "config-autoscaler"
KEY: Final = "pod-autoscaler-class"
INGRESS: Final = "ingress"
ENVIRONMENT: Final = {"GATEWAY_NAMESPACE_OVERRIDE": TESTS, "GATEWAY_OVERRIDE": INGRESS, "SYSTEM_NAMESPACE": NAMESPACE}
"""Where the tests look for the Service of the ingress, and for Knative."""
_CLASS: Final = "autoscaling.knative.dev/class"
_PROBE: Final = "class-probe"
_SEEN_WITHIN: Final = 30.0  # s until Knative acts by a changed ConfigMap; an informer's watch takes milliseconds
_GONE_WITHIN: Final = 180.0  # s until namespaces with ending Pods are gone; queue-proxy drains for 30 s
_INGRESS: Final[Document] = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {
        "name": INGRESS,
        "namespace": TESTS,
        # The tests only read its status: kube-proxy makes no rules for what another proxy serves.
        "labels": {"service.kubernetes.io/service-proxy-name": "none"},
    },
    "spec": {"type": "LoadBalancer", "allocateLoadBalancerNodePorts": False, "ports": [{"port": 80}]},
}
_STATUS: Final = {"status": {"loadBalancer": {"ingress": [{"ip": INGRESS_ADDRESS}]}}}
_AT_INGRESS: Final = ("--subresource=status", "--type=merge", f"--patch={json.dumps(_STATUS)}")


@contextlib.contextmanager
def prepared(kubectl: Kubectl, autoscaler_class: str) -> Iterator[None]:
    """The cluster made ready for the tests, with Services of `autoscaler_class` unless they name one.

    Afterwards all is as it was; the namespaces take a while to be gone. Raises TestbedError when Knative does not take
    the class over.
    """
    for name in NAMESPACES:  # those of the run before may still be ending
        if kubectl.get("namespace", name).get("status", {}).get("phase") == "Terminating":
            kubectl.wait("--for=delete", f"namespace/{name}", timeout=_GONE_WITHIN)
    try:
        kubectl.apply(_documents())
        kubectl.run("patch", f"service/{INGRESS}", f"--namespace={TESTS}", *_AT_INGRESS)
        with _default_class(kubectl, autoscaler_class):
            yield
    finally:
        where = [f"namespace/{name}" for name in NAMESPACES]
        kubectl.run("delete", "--ignore-not-found", "--wait=false", *where)


@contextlib.contextmanager
def _default_class(kubectl: Kubectl, wanted: str) -> Iterator[None]:
    """The testbed's own settings have no such key: it is removed afterwards, also when a killed run had left it."""
    _set_class(kubectl, wanted)
    try:
        what = f"{CONFIG_MAP}.{KEY}: new PodAutoscalers are of {wanted}"
        waiting.until(what, lambda: _class_of_new(kubectl) == wanted, _SEEN_WITHIN)
        yield
    finally:
        _set_class(kubectl, None)


def _set_class(kubectl: Kubectl, value: str | None) -> None:
    patch = json.dumps({"data": {KEY: value}})
    kubectl.run("patch", "configmap", CONFIG_MAP, f"--namespace={NAMESPACE}", "--type=merge", f"--patch={patch}")


def _class_of_new(kubectl: Kubectl) -> str:
    """The class that Knative gives to the PodAutoscaler of a Configuration which names none; it starts no Pod."""
    where = f"--namespace={TESTS}"
    name = f"podautoscaler/{_PROBE}-00001"
    kubectl.apply([_probe()])
    try:
        kubectl.wait("--for=create", name, where, timeout=_SEEN_WITHIN)
        return str(kubectl.get(name, where)["metadata"]["annotations"].get(_CLASS, ""))
    finally:
        kubectl.run("delete", f"configuration.serving.knative.dev/{_PROBE}", where, "--cascade=foreground")


def _probe() -> Document:
    image = images.reference(CONFORMANCE, f"{TEST_PREFIX}helloworld")
    template = {
        "metadata": {"annotations": {"autoscaling.knative.dev/initial-scale": "0"}},
        "spec": {"containers": [{"image": image}]},
    }
    return {
        "apiVersion": "serving.knative.dev/v1",
        "kind": "Configuration",
        "metadata": {"name": _PROBE, "namespace": TESTS},
        "spec": {"template": template},
    }


def _documents() -> list[Document]:
    """Upstream's namespaces and test objects, and the Service of the ingress."""
    source = upstream.sources(CONFORMANCE, [SERVING])[SERVING]
    found = upstream.documents(source, "test/config/cluster-resources.yaml", "test/config/test-resources.yaml")
    wanted = [one for one in found if {one["metadata"]["name"], one["metadata"].get("namespace")} & set(NAMESPACES)]
    return [*wanted, _INGRESS]
