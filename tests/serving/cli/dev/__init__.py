"""Tests of `knodel dev`."""
