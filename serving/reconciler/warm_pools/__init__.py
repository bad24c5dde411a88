"""The controller of WarmPools."""
