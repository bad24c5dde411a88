"""What is built from which Go module, and with which flags. The versions themselves stand in modules/*/go.mod."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.testbed.errors import TestbedError

MODULES: Final = Path(__file__).parent / "modules"
_VERSION_PACKAGE: Final = "k8s.io/component-base/version"


@dataclass(frozen=True, slots=True)
class Module:
    """A folder of modules/ and the commands built from it: name of the binary -> Go package."""

    name: str
    binaries: dict[str, str] = field(hash=False)
    main: str = ""  # the module whose release the binaries are; "" for a program of our own
    tests: dict[str, str] = field(default_factory=dict, hash=False)  # programs of Go tests, built with the tag `e2e`

    @property
    def folder(self) -> Path:
        """Where go.mod, go.sum and the main or the tools file stand."""
        return MODULES / self.name

    @property
    def version(self) -> str:
        """The pinned release, such as `v1.35.4`; "" for a program of our own."""
        return required(self.main, (self.folder / "go.mod").read_text()) if self.main else ""

    @property
    def link_flags(self) -> str:
        """Flags of the linker: no symbols; Kubernetes also gets its version, without which Knative refuses it.

        Helm gets its own, and that of the Kubernetes which it assumes without a cluster, as in its releases.
        """
        if self.name == "helm":
            client = required("k8s.io/client-go", (self.folder / "go.mod").read_text())
            return " ".join(["-s -w", *_helm_version(self.version, client)])
        return " ".join(["-s -w", *(_kubernetes_version(self.version) if self.name == "kubernetes" else [])])


def required(module: str, go_mod: str) -> str:
    """The version of `module` that the text of a go.mod requires. Raises TestbedError when it does not."""
    found = re.search(rf"^(?:require\s+|\t){re.escape(module)} (v\S+)", go_mod, re.MULTILINE)
    if found is None:
        raise TestbedError(f"go.mod does not require {module}: add it and run `go mod tidy`")
    return found[1]


def _kubernetes_version(version: str) -> list[str]:
    major, minor, _ = version.removeprefix("v").split(".", 2)
    values = {"gitVersion": version, "gitMajor": major, "gitMinor": minor}
    return [f"-X {_VERSION_PACKAGE}.{name}={value}" for name, value in values.items()]


def _helm_version(version: str, client: str) -> list[str]:
    _, minor, _ = client.split(".", 2)  # v0.34.1 is the client of Kubernetes 1.34
    assumed = {"k8sVersionMajor": "1", "k8sVersionMinor": minor}
    return [
        f"-X helm.sh/helm/v3/internal/version.version={version}",
        *(f"-X helm.sh/helm/v3/pkg/chartutil.{name}={value}" for name, value in assumed.items()),
    ]


def _commands(prefix: str, *names: str) -> dict[str, str]:
    return {name: f"{prefix}/{name}" for name in names}


_EVENTING_COMMANDS: Final = (
    "controller",
    "webhook",
    "broker/filter",
    "broker/ingress",
    "in_memory/channel_controller",
    "in_memory/channel_dispatcher",
    "mtchannel_broker",
    "apiserver_receive_adapter",
)

BASE: Final = (
    Module("pause", {"pause": "."}),
    Module("etcd", {"etcd": "."}, "go.etcd.io/etcd/server/v3"),
    Module(
        "kubernetes",
        _commands(
            "k8s.io/kubernetes/cmd",
            "kube-apiserver",
            "kube-controller-manager",
            "kube-scheduler",
            "kubelet",
            "kube-proxy",
            "kubectl",
        ),
        "k8s.io/kubernetes",
    ),
    Module("coredns", {"coredns": "."}, "github.com/coredns/coredns"),
    Module(
        "serving",
        _commands("knative.dev/serving/cmd", "activator", "autoscaler", "controller", "queue", "webhook"),
        "knative.dev/serving",
    ),
    Module("kourier", _commands("knative.dev/net-kourier/cmd", "kourier"), "knative.dev/net-kourier"),
)
EVENTING: Final = Module(
    "eventing",
    # `eventing-` keeps its controller and webhook apart from Serving's.
    {f"eventing-{name.rpartition('/')[2]}": f"knative.dev/eventing/cmd/{name}" for name in _EVENTING_COMMANDS},
    "knative.dev/eventing",
)
KUBERAY: Final = Module(
    "kuberay",
    {"kuberay-operator": "github.com/ray-project/kuberay/ray-operator"},
    "github.com/ray-project/kuberay/ray-operator",
)
VOLCANO: Final = Module(
    "volcano",
    {
        f"volcano-{name}": f"volcano.sh/volcano/cmd/{name}"  # `volcano-` keeps its programs apart from Kubernetes'
        for name in ("controller-manager", "scheduler")
    },
    "volcano.sh/volcano",
)
KWOK: Final = Module("kwok", {"kwok": "sigs.k8s.io/kwok/cmd/kwok"}, "sigs.k8s.io/kwok")
DRA: Final = Module(
    "dra",
    {"dra-example-kubeletplugin": "sigs.k8s.io/dra-example-driver/cmd/dra-example-kubeletplugin"},
    "sigs.k8s.io/dra-example-driver",
)
OPTIONAL: Final = (EVENTING, KUBERAY, VOLCANO)
"""Modules that the testbed runs in Pods on request."""
ON_HOST: Final = (KWOK, DRA)
"""Modules whose programs tests start beside the testbed; they are built on request."""

HELM: Final = Module("helm", {"helm": "helm.sh/helm/v3/cmd/helm"}, "helm.sh/helm/v3")
ACTIONLINT: Final = Module(
    "actionlint", {"actionlint": "github.com/rhysd/actionlint/cmd/actionlint"}, "github.com/rhysd/actionlint"
)
TOOLS: Final = (HELM, ACTIONLINT)
"""Programs that tests of the release run; no part of the testbed."""

_TEST_IMAGES: Final = (
    "autoscale",
    "failing",
    "hellohttp2",
    "hellovolume",
    "helloworld",
    "multicontainer/servingcontainer",
    "multicontainer/sidecarcontainer",
    "pizzaplanetv1",
    "pizzaplanetv2",
    "readiness",
    "runtime",
    "singlethreaded",
    "timeout",
    "volumes",
)
TEST_PREFIX: Final = "knative-test-"
"""Keeps the programs of Knative's tests apart from those of Knative; also in the names of their images."""
CONFORMANCE: Final = Module(
    "conformance",
    {
        f"{TEST_PREFIX}{name.rpartition('/')[2]}": f"knative.dev/serving/test/test_images/{name}"
        for name in _TEST_IMAGES
    },
    "knative.dev/serving",
    {
        "knative-conformance-api": "knative.dev/serving/test/conformance/api/v1",
        "knative-conformance-runtime": "knative.dev/serving/test/conformance/runtime",
        "knative-scaling": ".",
    },
)
