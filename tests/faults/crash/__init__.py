"""The crash sweep: killed at every write of a Model's life, the platform brings about what it does without."""
