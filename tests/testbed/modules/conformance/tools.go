//go:build tools

// Package tools pins Knative's own tests and the programs of their images.
package tools

import (
	_ "knative.dev/serving/test/conformance/api/v1"
	_ "knative.dev/serving/test/conformance/runtime"
	_ "knative.dev/serving/test/test_images/autoscale"
	_ "knative.dev/serving/test/test_images/failing"
	_ "knative.dev/serving/test/test_images/hellohttp2"
	_ "knative.dev/serving/test/test_images/hellovolume"
	_ "knative.dev/serving/test/test_images/helloworld"
	_ "knative.dev/serving/test/test_images/multicontainer/servingcontainer"
	_ "knative.dev/serving/test/test_images/multicontainer/sidecarcontainer"
	_ "knative.dev/serving/test/test_images/pizzaplanetv1"
	_ "knative.dev/serving/test/test_images/pizzaplanetv2"
	_ "knative.dev/serving/test/test_images/readiness"
	_ "knative.dev/serving/test/test_images/runtime"
	_ "knative.dev/serving/test/test_images/singlethreaded"
	_ "knative.dev/serving/test/test_images/timeout"
	_ "knative.dev/serving/test/test_images/volumes"
)
