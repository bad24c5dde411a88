"""Inference execution: slots and queue, batches, deadlines, worker threads, and the lifecycle of a model."""
