"""The control API: Kubernetes' grammar over every kind in the store, for the command, kubectl and scripts."""
