"""Published experiments on the allocator of GPUs, in a simulated cluster: `python -m loadtests.gpu`."""
