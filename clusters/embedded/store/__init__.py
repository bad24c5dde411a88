"""The storage of the embedded API server: admission, writes, history, watches, and one SQLite file."""
