"""Tests of putting Knodel on a cluster and taking it off."""
