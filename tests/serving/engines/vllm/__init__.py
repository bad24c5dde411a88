"""Tests of the format vllm."""
