"""The testbed as a whole: brought up step by step, taken down without a trace, parts of it started again."""

from __future__ import annotations

import contextlib
import fcntl
import shutil
import signal
from collections.abc import Callable, Iterator
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
    kubeconfigs,
    machine,
    mounts,
    network,
    node,
    paths,
    pki,
    processes,
    steps,
    versions,
)
from tests.testbed.errors import TestbedError
from tests.testbed.kubectl import Kubectl
from tests.testbed.paths import Paths
from tests.testbed.processes import Component, Processes
from tests.testbed.progress import Progress
from tests.testbed.steps import Step

COMPONENTS: Final[dict[str, Callable[[Paths], Component]]] = {
    control_plane.ETCD: control_plane.etcd,
    control_plane.API_SERVER: control_plane.api_server,
    control_plane.CONTROLLER_MANAGER: control_plane.controller_manager,
    control_plane.SCHEDULER: control_plane.scheduler,
    node.CONTAINERD: node.containerd,
    node.KUBELET: node.kubelet,
    node.KUBE_PROXY: node.kube_proxy,
}
_NAMESPACE: Final = "knodel-system"
_OUR_ARCHIVE: Final = "knodel-"  # how the file name of the archive with our own images begins
_NODE_READY: Final = 60.0  # s from the kubelet's start; 5 s on a quiet machine
_GRACE: Final = 2.0  # s: nothing of a testbed that goes away is worth finishing


class Testbed:
    """One testbed; every method may be called at any time and again, and waits for another command at work."""

    __test__ = False

    def __init__(self, where: Paths, progress: Progress) -> None:
        self._paths = where
        self._progress = progress
        self._processes = Processes(where)
        self._made: list[Path] = []  # the archives, once the step that makes them is done

    @property
    def kubectl(self) -> Kubectl:
        """As the administrator."""
        return Kubectl(self._paths.binaries / "kubectl", self._paths.kubeconfig)

    def build(self, eventing: bool = False) -> None:
        """Make all binaries and images that are not in the cache yet."""
        machine.check(self._paths)
        self._build(eventing)
        self._archives()

    def up(self, eventing: bool = False) -> bool:
        """Bring everything up that is not; whether there was something to do.

        Raises MachineLacks, or TestbedError of the first step that failed; then `up` again goes on from there.
        """
        machine.check_privileges()
        with self._alone(self._paths.lock):
            machine.check(self._paths)
            if not self._paths.state.exists():
                machine.check_unused()
            found.remember(self._paths)
            return steps.run(self._steps(eventing), self._progress)

    def down(self) -> None:
        """End and remove everything but the cache, whatever state it is in."""
        machine.check_privileges()
        with self._alone(self._paths.lock):
            if not self._paths.state.exists():
                return  # without it nothing of ours is there: it is made first and removed last
            self._progress("end processes")
            processes.end_all(processes.marked(self._paths.state), _GRACE)
            cgroups.remove()
            self._progress("remove mounts, networks, packet filter rules")
            mounts.unmount_below(self._paths.state)
            network.remove()
            firewall.clear()
            found.restore(self._paths)
            self._progress("remove state")
            self._remove_state()

    def restart(self, name: str) -> None:
        """End component `name` (a key of COMPONENTS) when it runs, start it, and wait until it serves.

        Raises TestbedError when there is no such component, or it does not serve in time.
        """
        component = self._component(name)
        with self._alone(self._paths.lock):
            self._processes.end([component])
            self._processes.ensure(component)

    def kill(self, name: str) -> None:
        """kill -9 of component `name`; returns once it has ended."""
        component = self._component(name)
        with self._alone(self._paths.lock):
            self._processes.end([component], signal.SIGKILL)

    def reload_images(self) -> list[str]:
        """Make our images from the code as it is, import them, and restart our Deployments; which were restarted."""
        with self._alone(self._paths.lock):
            archives = [archive for archive in self._archives() if archive.name.startswith(_OUR_ARCHIVE)]
            if not containers.import_archives(self._paths, archives):
                return []
            listed = self.kubectl.get("deployments", f"--namespace={_NAMESPACE}").get("items", [])
            names = [str(each["metadata"]["name"]) for each in listed]
            for name in names:
                self.kubectl.run("rollout", "restart", f"deployment/{name}", f"--namespace={_NAMESPACE}")
            for name in names:
                self.kubectl.run("rollout", "status", f"deployment/{name}", f"--namespace={_NAMESPACE}")
            return names

    def pids(self) -> dict[str, int]:
        """The running components."""
        identities = {name: self._processes.running(name) for name in COMPONENTS}
        return {name: identity.pid for name, identity in identities.items() if identity is not None}

    def _steps(self, eventing: bool) -> list[Step]:
        """The order is that of the fewest seconds: add-ons are applied while images are unpacked, pods start after."""
        etcd, api, containerd, kubelet = control_plane.ETCD, control_plane.API_SERVER, node.CONTAINERD, node.KUBELET
        return [
            Step("packages", lambda: debian.ensure(self._progress)),
            Step("binaries", lambda: self._build(eventing)),
            Step("images", self._make_images, ("binaries",)),
            Step("certificates", lambda: pki.ensure(self._paths.pki)),
            Step("network", self._connect, ("packages",)),
            Step("configuration", self._configure, ("certificates", "binaries")),
            self._start(etcd, "configuration"),
            self._start(api, etcd, "network"),
            self._start(control_plane.CONTROLLER_MANAGER, api),
            self._start(control_plane.SCHEDULER, api),
            self._start(containerd, "configuration", "network"),
            Step("imported images", self._import, ("images", containerd)),
            self._start(kubelet, api, "imported images"),
            self._start(node.KUBE_PROXY, api),
            Step("node", self._await_node, (kubelet,)),
            Step("add-ons", lambda: self._install(eventing), (api,)),
        ]

    def _start(self, name: str, *needs: str) -> Step:
        return Step(name, lambda: self._processes.ensure(self._component(name)), needs)

    def _component(self, name: str) -> Component:
        if name not in COMPONENTS:
            raise TestbedError(f"there is no component {name}: it is one of {', '.join(COMPONENTS)}")
        return COMPONENTS[name](self._paths)

    def _build(self, eventing: bool) -> bool:
        modules = (*versions.BASE, versions.EVENTING) if eventing else versions.BASE
        with self._alone(self._paths.build_lock):
            return builds.ensure(modules, self._paths, self._progress)

    def _archives(self) -> list[Path]:
        with self._alone(self._paths.build_lock):
            return images.ensure_images(self._paths.binaries, self._paths.cache)

    def _make_images(self) -> bool:
        before = set(self._paths.archives.glob("*"))
        self._made = self._archives()
        return not before.issuperset(self._made)

    def _connect(self) -> bool:
        found.apply_settings()
        cgroups.ensure()
        return network.ensure()

    def _configure(self) -> bool:
        kubeconfigs.ensure(self._paths)
        control_plane.write_config(self._paths)
        node.write_config(self._paths)
        return False

    def _import(self) -> bool:
        return bool(containers.import_archives(self._paths, self._made))

    def _await_node(self) -> bool:
        name = f"node/{addresses.NODE}"
        self.kubectl.wait("--for=create", name, timeout=_NODE_READY)
        self.kubectl.wait("--for=condition=Ready", name, timeout=_NODE_READY)
        return False

    def _install(self, eventing: bool) -> bool:
        addons.install(self.kubectl, eventing, self._progress)
        return False

    def _remove_state(self) -> None:
        try:
            shutil.rmtree(self._paths.state)
        except OSError as exc:
            raise TestbedError(f"{exc.filename} cannot be removed: {exc.strerror}") from exc

    @contextlib.contextmanager
    def _alone(self, path: Path) -> Iterator[None]:
        """Hold the lock: a second command waits until the first has ended."""
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self._progress("another command of the testbed is at work: waiting for it")
                fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def restart(name: str) -> None:
    """`Testbed.restart` of this user's testbed."""
    _standard().restart(name)


def kill(name: str) -> None:
    """`Testbed.kill` of this user's testbed."""
    _standard().kill(name)


def reload_images() -> list[str]:
    """`Testbed.reload_images` of this user's testbed."""
    return _standard().reload_images()


def _standard() -> Testbed:
    return Testbed(paths.standard(), Progress())
