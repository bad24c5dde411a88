"""The gateway: Envoy, and the pure maker of its configuration. It knows nothing of which cluster it stands before."""
