"""Find a platform or a cluster, and talk to its Kubernetes API and to its models; no command, no printing."""
