"""MLflow model folders: a native engine loads the flavor, and the signature names the inputs."""
