"""What Knodel knows of the world: objects, the `Cluster` protocol, and the clusters that implement it.

Everything above this package talks to a cluster only through `clusters.base.api.Cluster`.
"""
