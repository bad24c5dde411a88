"""The autoscaler class: metrics, decisions, warm pools, usage accounts."""
