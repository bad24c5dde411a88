"""The control API of the embedded cluster: the Kubernetes API for the kinds in its store."""
