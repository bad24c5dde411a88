"""Download files: checked connections, retries, deadlines, resumption."""
