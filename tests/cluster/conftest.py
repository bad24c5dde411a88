"""Fixtures of the tests on a real cluster; without `--cluster kubernetes` nothing here is collected.

`installed` asks for Knodel on the cluster; who drives Knative's objects alone does without.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from clusters.base.api import Cluster
from clusters.base.errors import NotFound
from clusters.base.objects import NAMESPACE
from serving.types.settings.settings import Settings
from tests.cluster import leases
from tests.cluster.acting import settings_of
from tests.cluster.calling import Caller, calling
from tests.cluster.own_autoscaler import GRACE, LEASE_NAME, installed_grace, is_running, own_autoscaler
from tests.cluster.place import Place, place
from tests.cluster.plain import Plain
from tests.support.artifacts import ArtifactServer, artifact_server
from tests.support.kourier import find_kourier
from tests.support.kubernetes import KubeTarget, installed_settings, kube_target, kubernetes_cluster

MANAGER = "tests"


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """The everyday tests do without a cluster."""
    return True if config.getoption("--cluster") != "kubernetes" else None


OWN_REPLICAS = frozenset(
    {
        "test_class_restart.py",
        "test_crash_sample.py",
        "test_groups.py",
        "test_pod_security.py",
        "test_reconciler.py",
        "test_refusals.py",
        "test_stores.py",
    }
)
"""Files whose tests run replicas of their own while the installed ones stand by: side by side among themselves."""
FIRST = "test_training.py"
"""The longest file of those that run side by side: minutes, beside which the others are done."""
CONTRACT = Path(__file__).parents[1] / "contract"
"""Seconds a file: what the workers do last, so that none of them waits long for another one."""
LAST = ("test_rights.py", "test_uninstall.py")
"""The first judges the rights used by all tests before it; the second removes Knodel from the cluster."""
EXCLUSIVE = frozenset(
    {
        "test_kills.py",  # these kill, replace or reconfigure components that others use
        "test_conformance.py",
        "test_dashboard.py",  # adds a Deployment to the installation
        "test_readme.py",
        "test_training_jobs.py",
        "test_rapid_reset.py",  # these load the machine, or measure it
        "test_signals.py",
        *LAST,
    }
)
"""Files whose tests need the cluster for themselves; all others run side by side, in namespaces of their own."""


SCHEDULERS = frozenset({"test_edl.py", "test_tenants.py", "test_volcano.py"})
"""Files whose tests need KWOK or Volcano, and controllers of their own while the installed ones stand by."""
HELM = frozenset({"test_helm.py"})
"""Files whose tests replace the installation by a release of Helm, and install Knodel again at their end."""
RAY = frozenset({"test_ray.py", "test_ray_groups.py", "test_rayservice.py"})
"""Files whose tests start Ray; a node of Ray takes 25 s of processor time to start, and 1 GiB of memory."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of the sets above; put long files first and those of `LAST` at the end."""
    in_file = Counter(item.path for item in items)

    def order(item: pytest.Item) -> tuple[int, bool, bool, int]:
        last = LAST.index(item.path.name) + 1 if item.path.name in LAST else 0
        return last, item.path.name != FIRST, item.path.parent == CONTRACT, -in_file[item.path]

    for item in items:
        if item.path.name in OWN_REPLICAS:
            item.add_marker(pytest.mark.own_replicas)
        if item.path.name in RAY:
            item.add_marker(pytest.mark.ray)
        if item.path.name in SCHEDULERS:
            item.add_marker(pytest.mark.schedulers)
        if item.path.name in HELM:
            item.add_marker(pytest.mark.helm)
        if item.path.name in EXCLUSIVE:
            item.add_marker(pytest.mark.exclusive)
    items.sort(key=order)


@pytest.fixture(scope="session")
def target(request: pytest.FixtureRequest) -> KubeTarget:
    """Kubeconfig, context and API server address that the options name."""
    return kube_target(request.config)


@pytest.fixture
async def cluster(target: KubeTarget) -> AsyncIterator[Cluster]:
    """The real cluster."""
    async with kubernetes_cluster(target) as running:
        yield running


@pytest.fixture
async def namespace(cluster: Cluster) -> AsyncIterator[str]:
    """A namespace of the test's own, whose deletion is asked for at the end."""
    name = f"test-{uuid.uuid4().hex[:10]}"
    made = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    await cluster.create(NAMESPACE, made, manager=MANAGER)
    yield name
    with suppress(NotFound):
        await cluster.delete(NAMESPACE, name)


@pytest.fixture(scope="module")
def files(target: KubeTarget, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ArtifactServer]:
    """Model files that Pods can load, for the tests of a module."""
    with artifact_server(tmp_path_factory.mktemp("artifacts"), target.server) as server:
        yield server


@pytest.fixture
def artifacts(target: KubeTarget, tmp_path: Path) -> Iterator[ArtifactServer]:
    """Model files that Pods can load."""
    with artifact_server(tmp_path, target.server) as server:
        yield server


@pytest.fixture
async def installed(cluster: Cluster) -> Settings:
    """The settings of the Knodel that is installed. Fails, with the remedy, where none is."""
    try:
        return await installed_settings(cluster)
    except NotFound:
        pytest.fail("Knodel is not on this cluster: `knodel install --kube-context NAME`")


@pytest.fixture
async def here(
    cluster: Cluster, target: KubeTarget, namespace: str, artifacts: ArtifactServer, tmp_path: Path
) -> AsyncIterator[Place]:
    """A namespace with a controller and an autoscaler of the test's own."""
    async with place(cluster, target, namespace, artifacts, tmp_path) as made:
        yield made


@pytest.fixture
async def plain(cluster: Cluster, namespace: str) -> AsyncIterator[Plain]:
    """A namespace for plain Knative Services, whose objects are watched."""
    image = (await settings_of(cluster)).server.image
    async with Plain(cluster, namespace, await find_kourier(cluster), image).watched() as made:
        yield made


@pytest.fixture
async def caller(plain: Plain) -> AsyncIterator[Caller]:
    """A client of the Services in the namespace."""
    async with calling(plain) as made:
        yield made


@pytest.fixture
async def alone(cluster: Cluster) -> AsyncIterator[None]:
    """No installed autoscaler acts: the test runs those that it wants."""
    async with leases.held(cluster, LEASE_NAME):
        yield


@pytest.fixture
async def autoscaler(cluster: Cluster, namespace: str) -> AsyncIterator[float]:
    """An autoscaler that acts in the namespace: the installed one, or in this process where none runs.

    Its value are the seconds of its grace between the activator in the path and scale 0.
    """
    if await is_running(cluster):
        yield await installed_grace(cluster)
    else:
        async with own_autoscaler(cluster, namespace):
            yield GRACE
