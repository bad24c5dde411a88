"""The `Cluster` over a real kube-apiserver. No other package imports the `kubernetes` client.

The client is imported at the first connection, because the import takes half a second and 50 MiB.
"""

from clusters.kubernetes.cluster import KubernetesCluster
from clusters.kubernetes.connection import ApiConnection, connect
from clusters.kubernetes.login import LoginError
from clusters.kubernetes.transport import Timeouts

__all__ = ["ApiConnection", "KubernetesCluster", "LoginError", "Timeouts", "connect"]
