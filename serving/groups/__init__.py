"""Groups: the worker Pods of replicas with `spec.workers`, on Kubernetes."""
