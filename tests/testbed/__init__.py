"""A real Kubernetes with a real Knative on one Linux machine, for the tests: `python -m tests.testbed up`.

The host side (this package's processes, network, certificates) runs etcd, the control plane, containerd, the kubelet
and kube-proxy as processes of their own; images and add-ons (CoreDNS, Knative, Kourier) come on top as pods. README.md
tells what it needs, what it does and how long that takes.
"""
