"""The drivers of the Python package on HTTPX: one for threads, one for asyncio."""
