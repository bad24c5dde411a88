"""Inference requests: the address of a model, example requests, and the errors of responses."""
