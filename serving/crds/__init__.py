"""The CustomResourceDefinitions of Knodel's kinds, with the bounds and patterns of `serving.types`. Pure."""
