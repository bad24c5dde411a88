"""The Open Inference Protocol v2 over gRPC. It shares the model, slots and queue with HTTP.

Imported only when a gRPC port is configured. `server` is the port, `service` has the methods, `codec` and `wire` are
pure.
"""
