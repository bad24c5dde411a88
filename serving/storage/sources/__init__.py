"""The stores that models come from: files, HTTP, S3, Google Cloud Storage, the Hugging Face Hub, OCI registries."""
