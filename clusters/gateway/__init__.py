"""The gateway: Envoy, and pure functions that make its configuration. It is independent of the cluster."""
