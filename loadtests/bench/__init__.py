"""Benchmarks of the embedded platform: `make bench`. All figures are measured on this machine, each with an aim."""
