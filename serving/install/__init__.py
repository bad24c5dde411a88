"""Puts Knodel on a cluster and takes it off again: behind `knodel install` and `knodel uninstall`.

`manifests/` holds one rendered file for each overlay of the repository's `manifests/`, so that a wheel installs without
kustomize or kubectl.
"""
