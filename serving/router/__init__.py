"""The router on Kubernetes: one base URL for all language models of a namespace, selected by the body's `model`.

`app` has the ASGI application, `models` the Models that it knows, `upstream` the client of Knative's ingress, and
`exchange` one request with its response. `serving.platform.router_main` runs it. On one machine Envoy has this task
(`clusters.gateway.openai_script`).
"""
