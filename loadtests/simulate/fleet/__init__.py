"""Simulations of a fleet of models with a warm pool: `python -m loadtests.simulate.fleet`."""
