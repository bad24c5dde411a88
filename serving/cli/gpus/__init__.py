"""What `knodel gpus` shows of the GPUs of this machine, by NVML."""
