"""Usage accounts: replica seconds of each Model."""
