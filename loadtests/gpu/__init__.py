"""The allocator of GPUs (`autoscaler.gpu`) in a simulated cluster, beside published experiments: `python -m loadtests.gpu`."""
