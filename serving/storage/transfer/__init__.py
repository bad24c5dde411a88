"""Downloads: checked connections, retries, deadlines, resumption."""
