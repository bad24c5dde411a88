"""HTTP client for the control API of a local platform, or for kube-apiserver."""
