"""Values that the clients return: frozen dataclasses, each made from a Kubernetes object or a response."""
