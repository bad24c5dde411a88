"""Admission rules and defaults of Knative Serving, as its webhook has them. Pure."""
