"""Tests that need a real cluster: Kubernetes with Knative, and Knodel installed on it (`make test-cluster`)."""
