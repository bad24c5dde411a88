"""Simulations of scaling policies with recorded traces on a virtual clock: the wait of each request, and the cost."""
