"""The kubelet of the embedded cluster: Pods as processes of this machine."""

from clusters.embedded.kubelet.kubelet import Kubelet
from clusters.embedded.kubelet.leftovers import Leftover, end_leftovers, find_leftovers
from clusters.embedded.kubelet.node import Settings
from clusters.embedded.kubelet.process.images import Image

__all__ = ["Image", "Kubelet", "Leftover", "Settings", "end_leftovers", "find_leftovers"]
