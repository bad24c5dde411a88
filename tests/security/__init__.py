"""Security: planted secrets, Pods, policies of the network, what is in the package; the scanners of `make security`."""
