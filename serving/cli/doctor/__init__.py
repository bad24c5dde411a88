"""What `knodel doctor` examines, and what it makes of it."""
