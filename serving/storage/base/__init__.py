"""Parts that all of storage uses: errors, digests, artifacts, files on disk."""
