"""Tests of the engine of GGUF files."""
