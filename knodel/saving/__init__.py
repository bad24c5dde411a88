"""Save a model in memory as files that the model server loads, in the safe format of its library."""
