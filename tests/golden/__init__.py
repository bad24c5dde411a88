"""What real Knative says and does, written down: rendered objects, traces of conditions, objects that it refuses."""
