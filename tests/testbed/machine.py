"""What the testbed asks of a machine; the first thing that is missing is told in one sentence."""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tests.testbed import addresses, commands, golang, health
from tests.testbed.errors import MachineLacks
from tests.testbed.paths import Paths

_GIB: Final = 1 << 30
_STATE_DISK: Final = 3 * _GIB  # images unpacked 1.8 GiB, etcd 0.4, logs
_BUILD_DISK: Final = 8 * _GIB  # Go's two caches 6 GiB, binaries and images 2
_MEMORY: Final = 3 * _GIB  # 1.4 GiB in use with everything up, and some models
_NET_ADMIN: Final = 12  # bits of capabilities(7)
_SYS_ADMIN: Final = 21
_OVERLAY: Final = "overlay"
_BRIDGE_FILTER: Final = Path("/proc/sys/net/bridge/bridge-nf-call-iptables")
_SOCKET_PATH: Final = 107  # bytes, of unix(7)
_MODULES: Final = ("overlay", "br_netfilter", "veth", "nf_nat", "xt_comment")


def check_privileges() -> None:
    """Raise MachineLacks unless this process may make networks, mounts and processes for others."""
    if platform.system() != "Linux":
        raise MachineLacks(f"the testbed needs Linux: this machine runs {platform.system()}")
    if os.geteuid() != 0:
        raise MachineLacks("the testbed needs root: networks, mounts and cgroups are made; run it as root")
    for bit, name in ((_NET_ADMIN, "CAP_NET_ADMIN"), (_SYS_ADMIN, "CAP_SYS_ADMIN")):
        if not effective_capabilities(Path("/proc/self/status").read_text()) >> bit & 1:
            raise MachineLacks(f"the testbed needs {name}, which this container does not have: start it with it")


def check_build(paths: Paths) -> None:
    """Raise MachineLacks unless there is a compiler, and room for what it makes if nothing is made yet."""
    golang.check()
    if not paths.archives.exists():
        _check_disk(paths.cache, _BUILD_DISK)


def check_run(paths: Paths) -> None:
    """Raise MachineLacks unless privileges, kernel and memory do, and the disk when the testbed is not there yet."""
    check_privileges()
    _load_modules()
    for there, sentence in _KERNEL:
        if not there():
            raise MachineLacks(sentence)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if memory < _MEMORY:
        raise MachineLacks(
            f"the testbed needs {_MEMORY / _GIB:.0f} GiB of memory: this machine has {memory / _GIB:.1f}"
        )
    if not paths.state.exists():
        _check_disk(paths.state, _STATE_DISK)
    longest = f"{paths.containerd_socket}.ttrpc"
    if len(os.fsencode(longest)) > _SOCKET_PATH:
        raise MachineLacks(f"{longest} is too long for the path of a socket: set XDG_STATE_HOME to a shorter folder")


def check_unused() -> None:
    """Raise MachineLacks when another Kubernetes has this machine: its packet filter rules would be mixed with ours."""
    if health.answers("127.0.0.1", addresses.KUBELET_HEALTH_PORT, "/healthz"):
        raise MachineLacks("another kubelet runs on this machine: the testbed needs a machine without one")


def effective_capabilities(status: str) -> int:
    """The effective capabilities, one bit each, out of the text of /proc/PID/status."""
    line = next((line for line in status.splitlines() if line.startswith("CapEff:")), "CapEff: 0")
    return int(line.split()[1], base=16)


def _load_modules() -> None:
    """A kernel may have these built in or as modules; what neither helps shows in the checks that follow."""
    if not _BRIDGE_FILTER.exists() or not _has_overlay():
        for module in _MODULES:
            commands.succeeds("modprobe", module)


def _has_overlay() -> bool:
    return _OVERLAY in Path("/proc/filesystems").read_text().split()


def _has_cgroups() -> bool:
    """Of version 1 and 2: a kernel of today may list in the first file only what version 1 has."""
    lists = (Path("/proc/cgroups"), Path("/sys/fs/cgroup/cgroup.controllers"))
    return {"cpu", "memory", "pids"} <= {word for path in lists if path.exists() for word in path.read_text().split()}


def _check_disk(folder: Path, needed: int) -> None:
    free = shutil.disk_usage(_existing(folder)).free
    if free < needed:
        raise MachineLacks(f"{needed / _GIB:.0f} GiB of disk are needed for {folder}: {free / _GIB:.1f} are free")


def _existing(folder: Path) -> Path:
    return folder if folder.exists() else _existing(folder.parent)


_KERNEL: Final[tuple[tuple[Callable[[], bool], str], ...]] = (
    (_has_overlay, "this kernel lacks overlayfs, on which containers are stacked: load the module `overlay`"),
    (
        _BRIDGE_FILTER.exists,
        "this kernel lacks br_netfilter, without which Services fail: load the module `br_netfilter`",
    ),
    (_has_cgroups, "this kernel lacks the cgroup controllers cpu, memory and pids: switch them on"),
    (Path("/sys/fs/cgroup").is_dir, "this machine has no /sys/fs/cgroup: mount the cgroup file systems there"),
)
