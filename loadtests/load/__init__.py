"""`make load` and `make soak`: a platform under load of several shapes, and one HTML page of what came of it."""
