"""Foundations shared by all packages of the model server: errors, limits, headers, options, statistics, logs."""
