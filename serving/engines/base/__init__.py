"""Code that all engines share: the `Engine` protocol, the registry of formats, datatypes, errors and warm-up."""
