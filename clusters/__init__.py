"""Kubernetes objects, the `Cluster` protocol, and the clusters that implement it.

All packages above this one use a cluster only through `clusters.base.api.Cluster`, except composition roots and the
command, which know which cluster they run on.
"""
