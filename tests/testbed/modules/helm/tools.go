//go:build tools

// Package tools names the program that is built from Helm.
package tools

import _ "helm.sh/helm/v3/cmd/helm"
