"""The adapter to a real kube-apiserver: one of the two `Cluster`s. Nothing else imports the `kubernetes` client.

The client itself is imported at the first connection: it costs half a second and 50 MiB.
"""

from clusters.kubernetes.cluster import KubernetesCluster
from clusters.kubernetes.connection import Connection, connect
from clusters.kubernetes.login import LoginError
from clusters.kubernetes.timeouts import Timeouts

__all__ = ["Connection", "KubernetesCluster", "LoginError", "Timeouts", "connect"]
