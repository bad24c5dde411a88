"""What all engines share: the `Engine` protocol, the registry of formats, datatypes, errors, warm-up."""
