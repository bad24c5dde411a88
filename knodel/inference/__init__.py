"""Inference requests of the Open Inference Protocol: inputs, the binary tensor extension, and responses."""
