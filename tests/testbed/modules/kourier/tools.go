//go:build tools

// Package tools pins the Kourier of the testbed.
package tools

import (
	_ "knative.dev/net-kourier/cmd/kourier"
)
