"""The frame of a control-plane process on Kubernetes: options, logs, probes, metrics, settings file, leadership, end.

As controller-runtime's manager: composition roots (`*/main.py`) say what runs, this package says how it lives. It knows
of no kind and of no component.
"""
