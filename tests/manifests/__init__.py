"""Tests of what is applied to a real cluster: definitions, manifests, and how they are installed."""
