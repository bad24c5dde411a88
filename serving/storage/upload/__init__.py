"""Upload local model files to a store by their content: the key of an artifact holds its digest."""
