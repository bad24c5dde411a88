"""Measurements on real Kubernetes with Knative: `python -m loadtests.cluster`."""
