"""Serving: the Model API, the makers of Knative objects, the reconciler, the model server, the command."""
