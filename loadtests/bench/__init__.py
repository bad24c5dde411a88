"""`make bench`: figures of the embedded platform, each beside its aim, measured on this machine in one run."""
