"""Engines: one module per model format, imported only when a model of that format is loaded."""
