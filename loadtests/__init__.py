"""Benchmarks, load tests and simulations."""
