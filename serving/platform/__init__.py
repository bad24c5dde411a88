"""The composition roots: `knodel up` on one machine, and the controllers' process on Kubernetes."""
