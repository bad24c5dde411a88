"""Programs of the long tests: they import nothing of ours, since some run in environments of others."""
