//go:build tools

// Package tools pins the example driver for Dynamic Resource Allocation of the testbed.
package tools

import _ "sigs.k8s.io/dra-example-driver/cmd/dra-example-kubeletplugin"
