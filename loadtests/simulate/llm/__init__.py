"""Simulations of replicas with language models: what a request counts, by number, by KV cache or by tokens."""
