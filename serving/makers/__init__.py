"""Knative objects made from a Model. Pure."""
