//go:build tools

// Package tools pins the KubeRay of the testbed.
package tools

import (
	_ "github.com/ray-project/kuberay/ray-operator"
)
