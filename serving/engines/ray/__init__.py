"""Ray Serve applications, in child processes with a Ray of their own or in a Ray Serve elsewhere, called over HTTP."""
