"""GPUs of the node: which Pod has which, parts of one by MPS, the Node object, and GPUs that fail."""
