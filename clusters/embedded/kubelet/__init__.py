"""The kubelet of the embedded cluster, which runs Pods as processes of this machine."""

from clusters.embedded.kubelet.kubelet import Kubelet
from clusters.embedded.kubelet.leftovers import Leftover, end_leftovers, find_leftovers
from clusters.embedded.kubelet.node import KubeletSettings
from clusters.embedded.kubelet.process.images import ContainerImage

__all__ = ["ContainerImage", "Kubelet", "KubeletSettings", "Leftover", "end_leftovers", "find_leftovers"]
