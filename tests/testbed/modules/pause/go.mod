module knodel.dev/testbed/pause

go 1.25.0
