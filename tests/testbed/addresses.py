"""Names and addresses of the testbed: all inside 198.18.0.0/15, which the world keeps for such tests (RFC 2544)."""

from __future__ import annotations

from typing import Final

CLUSTER: Final = "knodel-testbed"  # name of the cluster and of the context in the kubeconfig
NODE: Final = "testbed"
CLUSTER_DOMAIN: Final = "cluster.local"

TEST_RANGE: Final = "198.18.0.0/15"  # what lies in it and is nobody's is dropped, never sent out
NODE_ADDRESS: Final = "198.19.255.1"
NODE_PREFIX: Final = 24
NODE_BRIDGE: Final = "kn0"  # an empty bridge carries the node's address: dummy interfaces are not in every kernel
POD_BRIDGE: Final = "kn1"
POD_RANGE: Final = "198.18.0.0/17"  # kube-proxy takes what comes from here for a pod's
POD_SUBNET: Final = "198.18.0.0/20"  # of the one node
POD_GATEWAY: Final = "198.18.0.1"
SERVICE_RANGE: Final = "198.18.128.0/17"
KUBERNETES_SERVICE: Final = "198.18.128.1"  # the first address of the range, by Kubernetes' rule
DNS_ADDRESS: Final = "198.18.128.10"
INGRESS_ADDRESS: Final = "198.18.128.80"  # Service kourier-system/kourier

API_PORT: Final = 6443
API_SERVER: Final = f"https://{NODE_ADDRESS}:{API_PORT}"
ETCD_PORT: Final = 12379  # not etcd's own 2379: a machine may have one already
ETCD_PEER_PORT: Final = 12380
KUBELET_PORT: Final = 10250
KUBELET_HEALTH_PORT: Final = 10248
CONTROLLER_MANAGER_PORT: Final = 10257
SCHEDULER_PORT: Final = 10259
PROXY_HEALTH_PORT: Final = 10256
PROXY_METRICS_PORT: Final = 10249
