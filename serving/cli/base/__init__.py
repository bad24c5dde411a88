"""What all of the command uses: its errors, its output, its tables."""
