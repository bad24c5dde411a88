"""What `knodel gpus` shows: the GPUs of a cluster by its API, and those of this machine by NVML."""
