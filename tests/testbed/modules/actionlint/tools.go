//go:build tools

// Package tools names the program that is built from actionlint.
package tools

import _ "github.com/rhysd/actionlint/cmd/actionlint"
