"""A server of many models: loads a model on its first request, and unloads idle ones when memory is short."""
