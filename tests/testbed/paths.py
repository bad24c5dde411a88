"""Where the testbed keeps what it makes: state that `down` removes, and a cache that stays."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.support.own_home import REAL_HOME


@dataclass(frozen=True, slots=True)
class Paths:
    """Folders and files below `state` (gone after `down`) and `cache` (binaries, images; by content, kept)."""

    state: Path
    cache: Path

    @property
    def kubeconfig(self) -> Path:
        """The administrator's."""
        return self.state / "kubeconfig"

    @property
    def pki(self) -> Path:
        """Certificates, keys and the components' kubeconfigs."""
        return self.state / "pki"

    @property
    def config(self) -> Path:
        """Configuration files of the components."""
        return self.state / "config"

    @property
    def logs(self) -> Path:
        """One log by component, and the audit log."""
        return self.state / "logs"

    @property
    def audit_log(self) -> Path:
        """JSON lines, one `audit.k8s.io/v1` Event each."""
        return self.logs / "audit.log"

    @property
    def records(self) -> Path:
        """One record (pid, start ticks, command's digest) by component."""
        return self.state / "run"

    @property
    def etcd(self) -> Path:
        """etcd's data."""
        return self.state / "etcd"

    @property
    def containerd(self) -> Path:
        """containerd's root, state and socket."""
        return self.state / "containerd"

    @property
    def containerd_socket(self) -> Path:
        """Where the kubelet and `ctr` reach containerd."""
        return self.containerd / "containerd.sock"

    @property
    def kubelet(self) -> Path:
        """The kubelet's root: volumes of pods are mounted below."""
        return self.state / "kubelet"

    @property
    def cni(self) -> Path:
        """Network configuration of pods, and the addresses given out."""
        return self.state / "cni"

    @property
    def builds(self) -> Path:
        """One folder of binaries by module and content."""
        return self.cache / "builds"

    @property
    def archives(self) -> Path:
        """Images to import."""
        return self.cache / "archives"

    @property
    def binaries(self) -> Path:
        """One link by built binary."""
        return self.cache / "bin"

    @property
    def locks(self) -> Path:
        """One file by thing that one command at a time may change."""
        return self.cache / "locks"


def home(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the user's home folder, also from within a test; root's without HOME, as in a job of a bare container."""
    return Path(environment.get(REAL_HOME) or environment.get("HOME") or "/root")


def standard(environment: Mapping[str, str] = os.environ) -> Paths:
    """The folders of this user, as the XDG base directory specification places them."""
    state = Path(environment.get("XDG_STATE_HOME") or home(environment) / ".local" / "state")
    cache = Path(environment.get("XDG_CACHE_HOME") or home(environment) / ".cache")
    return Paths(state / "knodel" / "testbed", cache / "knodel" / "testbed")
