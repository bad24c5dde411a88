"""The model server beside its peers: the same models, the same requests, one core each, in one run."""
