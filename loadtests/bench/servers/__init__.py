"""Benchmark of the model server and its peers: the same models and requests, one core each, in one run."""
