//go:build tools

// Package tools pins the KWOK of the testbed.
package tools

import _ "sigs.k8s.io/kwok/cmd/kwok"
