"""MLflow's tracking server and model registry, by their REST API: `models:/` and `runs:/` become concrete addresses."""
