"""The admission rules of Knative Serving's webhook, to which tests hold the objects that Knodel creates."""
