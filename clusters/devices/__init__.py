"""The GPUs of one machine: how they are read, how they are linked, and which set of them fits together."""
