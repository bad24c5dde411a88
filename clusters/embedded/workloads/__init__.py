"""Deployments and ReplicaSets of the embedded cluster: from a number of replicas to Pods, as Kubernetes does it.

Sources of the rules: kubernetes v1.35 `pkg/controller/{deployment,replicaset}`, `pkg/controller/controller_utils.go`;
measured against a real cluster where it matters (adoption, order of deletion). Narrower than those in two ways:
selectors are `matchLabels`, and a changed template replaces the old ReplicaSet once the new one is available.
"""

from clusters.embedded.workloads.workloads import Workloads

__all__ = ["Workloads"]
