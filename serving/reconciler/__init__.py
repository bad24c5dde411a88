"""Controllers of Models and WarmPools."""
