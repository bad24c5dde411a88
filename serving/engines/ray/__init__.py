"""Ray Serve applications: a Ray of their own in child processes, called over HTTP."""
