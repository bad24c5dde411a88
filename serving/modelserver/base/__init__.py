"""What all rooms of the model server use: errors, limits, headers, options."""
