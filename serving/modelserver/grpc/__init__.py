"""The Open Inference Protocol v2 over gRPC, in front of the same model, slots and queue as HTTP.

Imported only when there is a port for it: `server` composes, `service` has the methods, `codec` and `wire` are pure.
"""
