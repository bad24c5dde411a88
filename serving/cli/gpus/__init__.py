"""Read the GPUs of this machine by NVML, for `knodel gpus`."""
