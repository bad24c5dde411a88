"""Metrics of replicas and activators: read, kept in time buckets, averaged."""
