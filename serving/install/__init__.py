"""Install Knodel on a cluster and remove it: `knodel install` and `knodel uninstall`.

`manifests/` has one rendered file for each overlay of the repository's `manifests/`, so that an installation from a
wheel needs neither kustomize nor kubectl.
"""
