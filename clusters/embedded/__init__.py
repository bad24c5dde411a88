"""A cluster on one machine: store, Knative, workloads, kubelet, activator, data plane."""
