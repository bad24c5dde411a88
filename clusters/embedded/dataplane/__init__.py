"""The data plane controller: program Envoy and the activator from Ingresses, ServerlessServices and ready Pods."""
