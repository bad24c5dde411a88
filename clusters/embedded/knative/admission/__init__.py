"""The admission rules of Knative Serving's webhook."""
