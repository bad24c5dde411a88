"""The embedded API server's storage: admission, writes, history, watches, and one SQLite file."""
