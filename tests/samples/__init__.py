"""Measure how much of KServe's sample objects converts to Models, and serves."""
