"""The controller manager on Kubernetes: options, logs, probes, metrics, settings file, leadership and shutdown.

It corresponds to the manager of controller-runtime. The composition roots (`*/main.py`) define the components; this
package runs them, and contains no code for any kind or component.
"""
