"""The data plane controller: Ingresses and ready Pods become Envoy's and the activator's configuration."""
