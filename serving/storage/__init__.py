"""Storage: from a URI to the bytes of a model, verified; used by the model server before an engine sees anything."""
