"""Load tests of one model by locust: `knodel bench`, and the locust file for direct use."""
