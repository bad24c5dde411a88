"""Export of traces and metrics to an OpenTelemetry collector, by OTLP over HTTP with protobuf."""
