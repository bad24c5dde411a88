"""Network rules that all packages share."""
