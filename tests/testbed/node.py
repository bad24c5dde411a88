"""The one node as processes of the host: containerd, kubelet, kube-proxy, with their configuration."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any, Final

from tests.testbed import cgroups, files, health, kubeconfigs, pki
from tests.testbed.addresses import (
    CLUSTER_DOMAIN,
    DNS_ADDRESS,
    KUBELET_HEALTH_PORT,
    KUBELET_PORT,
    NODE,
    NODE_ADDRESS,
    POD_BRIDGE,
    POD_RANGE,
    POD_SUBNET,
    PROXY_HEALTH_PORT,
    PROXY_METRICS_PORT,
)
from tests.testbed.control_plane import FEATURE_GATES
from tests.testbed.paths import Paths
from tests.testbed.processes import Component

CONTAINERD: Final = "containerd"
KUBELET: Final = "kubelet"
KUBE_PROXY: Final = "kube-proxy"
PAUSE_IMAGE: Final = "dev.local/pause:1"
CNI_PROGRAMS: Final = "/usr/lib/cni"  # where Debian puts them
_LOOPBACK: Final = "127.0.0.1"
_MAX_PODS: Final = 250  # default 110; many small models fit on two cores
_CLIENT_QPS: Final = 200  # default 50
_CLIENT_BURST: Final = 400
_LONGEST_STOP: Final = 2.0  # s: the pods are ended beforehand, none of these has anything to finish

# Plugins that look for devices and file systems which the testbed does not use.
_UNUSED_PLUGINS: Final = (
    "io.containerd.snapshotter.v1.aufs",
    "io.containerd.snapshotter.v1.btrfs",
    "io.containerd.snapshotter.v1.devmapper",
    "io.containerd.snapshotter.v1.zfs",
)


def write_config(paths: Paths) -> None:
    """The configuration files of the node; one that is right already is not touched."""
    files.write(_containerd_config(paths), containerd_toml(paths))
    files.write_document(paths.cni / "conf" / "10-testbed.conflist", cni_config(paths))
    files.write(paths.config / "resolv.conf", "")  # of the pods that ask not for the cluster's DNS: nothing is outside
    files.write_document(_kubelet_config(paths), kubelet_config(paths))
    files.write_document(_proxy_config(paths), proxy_config(paths))


def containerd(paths: Paths) -> Component:
    """The container runtime with root, state and socket of its own, beside any other on this machine."""
    return Component(
        CONTAINERD,
        ("/usr/bin/containerd", "--config", str(_containerd_config(paths))),
        functools.partial(health.listens, paths.containerd_socket),
        (_containerd_config(paths),),
        grace=_LONGEST_STOP,
    )


def kubelet(paths: Paths) -> Component:
    """The kubelet."""
    command = (
        str((paths.binaries / KUBELET).resolve()),
        f"--config={_kubelet_config(paths)}",
        f"--kubeconfig={kubeconfigs.of(paths, KUBELET)}",
        f"--root-dir={paths.kubelet}",
        f"--hostname-override={NODE}",
        f"--node-ip={NODE_ADDRESS}",
    )
    ready = functools.partial(health.answers, _LOOPBACK, KUBELET_HEALTH_PORT, "/healthz")
    return Component(KUBELET, command, ready, (_kubelet_config(paths),), grace=_LONGEST_STOP)


def kube_proxy(paths: Paths) -> Component:
    """Service addresses by iptables, on the host as well."""
    command = (str((paths.binaries / KUBE_PROXY).resolve()), f"--config={_proxy_config(paths)}")
    ready = functools.partial(health.answers, _LOOPBACK, PROXY_HEALTH_PORT, "/healthz")
    return Component(KUBE_PROXY, command, ready, (_proxy_config(paths),), grace=_LONGEST_STOP)


def containerd_toml(paths: Paths) -> str:
    """containerd's configuration (version 2), everything below one folder."""
    home = paths.containerd
    disabled = ", ".join(f'"{plugin}"' for plugin in _UNUSED_PLUGINS)
    return f"""version = 2
root = "{home}/root"
state = "{home}/state"
disabled_plugins = [{disabled}]

[grpc]
address = "{paths.containerd_socket}"

[plugins."io.containerd.internal.v1.opt"]
path = "{home}/opt"

[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{PAUSE_IMAGE}"
# Without CAP_SYS_RESOURCE a sandbox cannot lower its oom_score_adj: then do not try.
restrict_oom_score_adj = true
enable_unprivileged_ports = true
enable_unprivileged_icmp = true
netns_mounts_under_state_dir = true

[plugins."io.containerd.grpc.v1.cri".containerd]
snapshotter = "overlayfs"
default_runtime_name = "runc"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
Root = "{home}/runc"
SystemdCgroup = false

[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "{CNI_PROGRAMS}"
conf_dir = "{paths.cni}/conf"
"""


def cni_config(paths: Paths) -> dict[str, Any]:
    """Pods hang on one bridge; a pod reaches itself through a Service (hairpin)."""
    addresses = {
        "type": "host-local",
        "ranges": [[{"subnet": POD_SUBNET}]],
        "routes": [{"dst": "0.0.0.0/0"}],
        "dataDir": str(paths.cni / "addresses"),
    }
    bridge = {"type": "bridge", "bridge": POD_BRIDGE, "isGateway": True, "hairpinMode": True, "ipam": addresses}
    return {"cniVersion": "1.0.0", "name": "testbed", "plugins": [bridge]}


def kubelet_config(paths: Paths) -> dict[str, Any]:
    """The kubelet's configuration."""
    folder = paths.pki
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": NODE_ADDRESS,
        "port": KUBELET_PORT,
        "healthzBindAddress": _LOOPBACK,
        "healthzPort": KUBELET_HEALTH_PORT,
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(pki.certificate(folder, pki.CA))},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": str(pki.certificate(folder, pki.KUBELET_SERVER)),
        "tlsPrivateKeyFile": str(pki.key(folder, pki.KUBELET_SERVER)),
        "containerRuntimeEndpoint": f"unix://{paths.containerd_socket}",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{cgroups.ROOT}",
        "failCgroupV1": False,
        "failSwapOn": False,
        "cpuCFSQuota": False,  # limits of many small models would throttle each other's starts on two cores
        "maxPods": _MAX_PODS,
        "serializeImagePulls": False,
        "clusterDNS": [DNS_ADDRESS],
        "clusterDomain": CLUSTER_DOMAIN,
        "resolvConf": str(paths.config / "resolv.conf"),
        "podLogsDir": str(paths.kubelet / "pod-logs"),
        "volumePluginDir": str(paths.kubelet / "volume-plugins"),
        "kubeAPIQPS": _CLIENT_QPS,
        "kubeAPIBurst": _CLIENT_BURST,
        "featureGates": dict.fromkeys(FEATURE_GATES, True),
        # Images are imported, not pulled: one that is collected would be gone. A full disk must not end pods either.
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
        "evictionHard": {
            "memory.available": "100Mi",
            "nodefs.available": "1%",
            "nodefs.inodesFree": "1%",
            "imagefs.available": "1%",
        },
    }


def proxy_config(paths: Paths) -> dict[str, Any]:
    """kube-proxy's configuration. It ends when the file is written to."""
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "iptables",
        "clientConnection": {"kubeconfig": str(kubeconfigs.of(paths, KUBE_PROXY))},
        "hostnameOverride": NODE,
        "clusterCIDR": POD_RANGE,
        "healthzBindAddress": f"{_LOOPBACK}:{PROXY_HEALTH_PORT}",
        "metricsBindAddress": f"{_LOOPBACK}:{PROXY_METRICS_PORT}",
        "iptables": {
            "minSyncPeriod": "0s",  # default 1 s, by which every change of a Service would come later
            "localhostNodePorts": False,  # would change a kernel setting of the whole machine
        },
        "conntrack": {"maxPerCore": 0, "min": 0},  # leave the kernel's
    }


def _containerd_config(paths: Paths) -> Path:
    return paths.config / "containerd.toml"


def _kubelet_config(paths: Paths) -> Path:
    return paths.config / "kubelet.json"


def _proxy_config(paths: Paths) -> Path:
    return paths.config / "kube-proxy.json"
