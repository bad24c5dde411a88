"""The machine as it was found: kernel settings and folders outside our own, put back at the end."""

from __future__ import annotations

import contextlib
import json
import shutil
from pathlib import Path
from typing import Final

from tests.testbed import files
from tests.testbed.errors import MachineLacks
from tests.testbed.paths import Paths

_SYSCTL: Final = Path("/proc/sys")
# At least; a machine that allows more stays as it is.
SETTINGS: Final = {
    "net/ipv4/ip_forward": 1,  # between pods and services
    "net/bridge/bridge-nf-call-iptables": 1,  # answers between pods of one bridge pass the service rules, too
    "fs/inotify/max_user_instances": 8192,  # default 128: used up by some dozens of pods
    "fs/inotify/max_user_watches": 524288,
}
# What the kubelet, kube-proxy and the bridge plugin set by themselves; remembered likewise.
_SET_BY_OTHERS: Final = (
    "kernel/panic",
    "kernel/panic_on_oops",
    "net/ipv4/conf/all/route_localnet",
    "net/netfilter/nf_conntrack_tcp_be_liberal",
    "net/netfilter/nf_conntrack_tcp_timeout_close_wait",
    "net/netfilter/nf_conntrack_tcp_timeout_established",
    "vm/overcommit_memory",
    "vm/panic_on_oom",
)
# What the components write at places that cannot be told to them.
FOLDERS: Final = (
    Path("/run/containerd"),  # sockets of the shims
    Path("/var/lib/cni"),  # results that libcni keeps
    Path("/var/lib/kubelet"),  # sockets of device plugins
    Path("/var/log/containers"),  # links to the pods' logs
    Path("/var/log/pods"),
    Path("/usr/libexec/kubernetes"),
)


def remember(paths: Paths) -> None:
    """Put down how the machine is, once: before anything is changed."""
    record = _record(paths)
    if not record.exists():
        settings = {name: value for name in (*SETTINGS, *_SET_BY_OTHERS) if (value := _value(name)) is not None}
        absent = [str(folder) for folder in FOLDERS if not folder.exists()]
        files.write_document(record, {"settings": settings, "absent": absent})


def apply_settings() -> None:
    """Raise the kernel settings to those of SETTINGS. Raises MachineLacks when one cannot be changed."""
    for name, value in SETTINGS.items():
        path = _SYSCTL / name
        try:
            if int(path.read_text()) < value:
                path.write_text(str(value))
        except OSError as exc:
            raise MachineLacks(f"the kernel setting {path} cannot be made {value}: {exc.strerror}") from exc


def restore(paths: Paths) -> None:
    """Put settings back and remove the folders that were not there. Without a record there is nothing to do."""
    record = _record(paths)
    if not record.exists():
        return
    found = json.loads(record.read_text())
    for name, value in found["settings"].items():
        if _value(name) != value:
            with contextlib.suppress(OSError):  # a setting that went with its kernel module
                (_SYSCTL / name).write_text(value)
    for folder in found["absent"]:
        shutil.rmtree(folder, ignore_errors=True)


def _value(name: str) -> str | None:
    with contextlib.suppress(OSError):
        return (_SYSCTL / name).read_text().strip()
    return None


def _record(paths: Paths) -> Path:
    return paths.state / "found.json"
