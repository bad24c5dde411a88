"""The testbed as a whole: brought up step by step, taken down without a trace, parts of it started again."""

from __future__ import annotations

import contextlib
import shutil
import signal
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Final

from tests.testbed import (
    addons,
    addresses,
    builds,
    cgroups,
    containers,
    control_plane,
    debian,
    firewall,
    found,
    images,
    knodel,
    kubeconfigs,
    machine,
    mounts,
    network,
    node,
    pki,
    processes,
    steps,
    versions,
)
from tests.testbed.errors import TestbedError
from tests.testbed.kubectl import Kubectl
from tests.testbed.locks import alone
from tests.testbed.paths import Paths, standard
from tests.testbed.processes import Component, Processes
from tests.testbed.progress import Progress, Report
from tests.testbed.steps import Step
from tests.testbed.versions import KUBERAY, Module

COMPONENTS: Final[dict[str, Callable[[Paths], Component]]] = {
    control_plane.ETCD: control_plane.etcd,
    control_plane.API_SERVER: control_plane.api_server,
    control_plane.CONTROLLER_MANAGER: control_plane.controller_manager,
    control_plane.SCHEDULER: control_plane.scheduler,
    node.CONTAINERD: node.containerd,
    node.KUBELET: node.kubelet,
    node.KUBE_PROXY: node.kube_proxy,
}
_NODE_READY: Final = 60.0  # s from the kubelet's start; 5 s on a quiet machine
_GRACE: Final = 2.0  # s: nothing of a testbed that goes away is worth finishing


class Testbed:
    """One testbed; every method may be called at any time and again, and waits for another command at work."""

    __test__ = False

    def __init__(self, where: Paths, report: Report) -> None:
        self._paths = where
        self._report = report
        self._processes = Processes(where)
        self._made: list[Path] = []  # the archives, once the step that makes them is done
        self._imported: list[Path] = []  # those that containerd did not have, once they are imported

    @property
    def kubectl(self) -> Kubectl:
        """As the administrator."""
        return Kubectl(self._paths.binaries / "kubectl", self._paths.kubeconfig)

    def build(self, optional: Collection[Module] = ()) -> None:
        """Make all binaries and images that are not in the cache yet."""
        machine.check_build(self._paths)
        self._build(optional)
        self._archives(optional)

    def up(self, optional: Collection[Module] = (), with_knodel: bool = False) -> bool:
        """Bring everything up that is not, and what is asked for of `versions.OPTIONAL` and Knodel.

        Return whether there was something to do.
        Raises MachineLacks, or TestbedError of the first step that failed; then `up` again goes on from there.
        """
        machine.check_run(self._paths)
        machine.check_build(self._paths)
        with alone(self._paths.locks / "testbed", self._report):
            if not self._paths.state.exists():
                machine.check_unused()
            # the state folder of `knodel up` is its parent, and private
            self._paths.state.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            found.remember(self._paths)
            changed = debian.ensure(self._report)  # not beside other steps: it must come to its end
            table = self._steps(optional) + (self._knodel_steps() if with_knodel else [])
            return steps.run(table, self._report) or changed

    def down(self) -> None:
        """End and remove everything but the cache, whatever state it is in."""
        with alone(self._paths.locks / "testbed", self._report):
            if not self._paths.state.exists():
                return  # without it nothing of ours is there: it is made first and removed last
            machine.check_privileges()
            self._report("end processes")
            processes.end_all(processes.marked(self._paths.state), _GRACE)
            cgroups.remove()
            self._report("remove mounts, networks, packet filter rules")
            mounts.unmount_below(self._paths.state)
            network.remove()
            firewall.clear()
            debian.clear_policy()
            found.restore(self._paths)
            self._report("remove state")
            self._remove_state()

    def restart(self, name: str) -> None:
        """End component `name` (a key of COMPONENTS) when it runs, start it, and wait until it serves.

        Raises TestbedError when there is no testbed or no such component, or it does not serve in time.
        """
        with self._alone_and_there():
            component = self._component(name)
            self._processes.end([component])
            self._processes.ensure(component)

    def kill(self, name: str) -> None:
        """kill -9 of component `name`; returns once it has ended. Raises TestbedError when there is none."""
        with self._alone_and_there():
            self._processes.end([self._component(name)], signal.SIGKILL)

    def reload_images(self) -> list[str]:
        """Make our images from the code as it is, import them, and restart our Deployments; which were restarted.

        Raises TestbedError when there is no testbed.
        """
        with self._alone_and_there():
            with_ray = containers.was_imported(self._paths, images.RAY_ARCHIVE)
            made = self._archives([KUBERAY] if with_ray else [])
            if not containers.import_archives(self._paths, filter(knodel.is_ours, made)):
                return []
            names = knodel.deployments(self.kubectl)
            knodel.restart(self.kubectl, names)
            return names

    def pids(self) -> dict[str, int]:
        """The running components."""
        identities = {name: self._processes.running(name) for name in COMPONENTS}
        return {name: identity.pid for name, identity in identities.items() if identity is not None}

    @contextlib.contextmanager
    def _alone_and_there(self) -> Iterator[None]:
        with alone(self._paths.locks / "testbed", self._report):
            if not self._paths.kubeconfig.exists():
                raise TestbedError(f"no testbed at {self._paths.state}: `python -m tests.testbed up` brings one up")
            yield

    def _steps(self, optional: Collection[Module]) -> list[Step]:
        """The order is that of the fewest seconds: add-ons are applied while images are unpacked, pods start after."""
        etcd, api, containerd, kubelet = control_plane.ETCD, control_plane.API_SERVER, node.CONTAINERD, node.KUBELET
        return [
            Step("binaries", lambda: self._build(optional)),
            Step("images", lambda: self._make_images(optional), ("binaries",)),
            Step("certificates", lambda: pki.ensure(self._paths.pki)),
            Step("network", self._connect),
            Step("configuration", self._configure, ("certificates", "binaries")),
            self._start(etcd, "configuration"),
            self._start(api, etcd, "network"),
            self._start(control_plane.CONTROLLER_MANAGER, api),
            self._start(control_plane.SCHEDULER, api),
            self._start(containerd, "configuration", "network"),
            Step("imported images", self._import, ("images", containerd)),
            self._start(kubelet, api, "imported images"),
            self._start(node.KUBE_PROXY, kubelet),  # it is ready once the node is registered
            Step("node", self._await_node, (kubelet,)),
            Step("add-ons", lambda: self._install(optional), (api,)),
        ]

    def _knodel_steps(self) -> list[Step]:
        return [Step("knodel", self._install_knodel, ("add-ons", "imported images", "node"))]

    def _start(self, name: str, *needs: str) -> Step:
        return Step(name, lambda: self._processes.ensure(self._component(name)), needs)

    def _component(self, name: str) -> Component:
        if name not in COMPONENTS:
            raise TestbedError(f"there is no component {name}: it is one of {', '.join(COMPONENTS)}")
        return COMPONENTS[name](self._paths)

    def _build(self, optional: Collection[Module]) -> bool:
        return builds.ensure((*versions.BASE, *optional), self._paths, self._report)

    def _archives(self, optional: Collection[Module]) -> list[Path]:
        with alone(self._paths.locks / "images", self._report):
            return images.ensure_images(self._paths.binaries, self._paths.cache, optional)

    def _make_images(self, optional: Collection[Module]) -> bool:
        before = set(self._paths.archives.glob("*"))
        self._made = self._archives(optional)
        return not before.issuperset(self._made)

    def _connect(self) -> bool:
        found.apply_settings()
        return network.ensure()

    def _configure(self) -> bool:
        cgroups.ensure()
        kubeconfigs.ensure(self._paths)
        control_plane.write_config(self._paths)
        node.write_config(self._paths)
        return False

    def _import(self) -> bool:
        self._imported = containers.import_archives(self._paths, self._made)
        return bool(self._imported)

    def _await_node(self) -> bool:
        name = f"node/{addresses.NODE}"
        self.kubectl.wait("--for=create", name, timeout=_NODE_READY)
        self.kubectl.wait("--for=condition=Ready", name, timeout=_NODE_READY)
        return False

    def _install(self, optional: Collection[Module]) -> bool:
        return addons.install(self.kubectl, optional, self._report)

    def _install_knodel(self) -> bool:
        before = knodel.deployments(self.kubectl)
        knodel.install(self.kubectl)
        if before and any(map(knodel.is_ours, self._imported)):
            knodel.restart(self.kubectl, before)
        return not before

    def _remove_state(self) -> None:
        try:
            shutil.rmtree(self._paths.state)
        except OSError as exc:
            raise TestbedError(f"{exc.filename} cannot be removed: {exc.strerror}") from exc


def restart(name: str) -> None:
    """`Testbed.restart` of this user's testbed."""
    Testbed(standard(), Progress()).restart(name)


def kill(name: str) -> None:
    """`Testbed.kill` of this user's testbed."""
    Testbed(standard(), Progress()).kill(name)
