"""Stores of models: local files, HTTP, S3, Google Cloud Storage, the Hugging Face Hub and OCI registries."""
