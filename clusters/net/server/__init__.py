"""The HTTP server of all processes: uvicorn's protocol with limits, without its main loop and signal handlers.

`server` has the server. `protocol` is what all its connections share, and the only module that extends a class of
uvicorn. `connection` is the connection with limits on framing, sizes and rates. The activator has another one, because
it must not read bodies early (`clusters.embedded.activator.proxy.caller`).
"""
