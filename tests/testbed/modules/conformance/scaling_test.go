//go:build e2e

// Package conformance asks of an autoscaler class what Knative's own end-to-end tests ask of Knative's: they name the
// class KPA in each call of these helpers, so here are the same calls with the class of the flag `-class`.
package conformance

import (
	"context"
	"flag"
	"os"
	"strconv"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	pkgtest "knative.dev/pkg/test"
	"knative.dev/pkg/test/spoof"
	"knative.dev/serving/pkg/apis/autoscaling"
	revisionnames "knative.dev/serving/pkg/reconciler/revision/resources/names"
	sksnames "knative.dev/serving/pkg/reconciler/serverlessservice/resources/names"
	rtesting "knative.dev/serving/pkg/testing/v1"
	"knative.dev/serving/test"
	"knative.dev/serving/test/e2e"
	v1test "knative.dev/serving/test/v1"
)

const (
	concurrency = 6                // as upstream's tests: enough for sampling, few enough for a small cluster
	rate        = 10               // requests per second and replica, as upstream's
	utilization = 0.7              // as upstream's
	upWithin    = 90 * time.Second // as upstream's, for one more replica on a busy cluster
	downWithin  = 2 * time.Minute  // the window is 30 s in SetupSvc; upstream's wait follows the cluster's grace period
	sustained   = 40 * time.Second // more than the window, so that both modes of an autoscaler are passed
	pollEvery   = 250 * time.Millisecond

	services        = 3 // at once; each is a parallel subtest that waits for all others, so more than -parallel never end
	activationScale = 5 // more than what one request asks for
)

var class = flag.String("class", autoscaling.KPA, "The autoscaler class of the Services under test.")

func TestMain(m *testing.M) {
	flag.Parse()
	pkgtest.SetupLoggingFlags()
	os.Exit(m.Run())
}

func TestScaleUpDownUp(t *testing.T) {
	t.Parallel()
	ctx := setup(t, autoscaling.Concurrency, concurrency, nil)
	e2e.AssertAutoscaleUpToNumPods(ctx, 1, 2, time.After(upWithin), true)
	scaledDown(t, ctx)
	e2e.AssertAutoscaleUpToNumPods(ctx, 0, 2, time.After(upWithin), true)
}

func TestScaleUpByConcurrency(t *testing.T) {
	t.Parallel()
	ctx := setup(t, autoscaling.Concurrency, concurrency, nil)
	for pods := 1.0; pods < 4; pods++ {
		e2e.AssertAutoscaleUpToNumPods(ctx, pods, pods+1, time.After(upWithin), true)
	}
}

// One step to 8, not upstream's to 2, 3 and 4: the image takes half a second for a request, so that an autoscaler which
// takes the target for requests in flight makes 6, which upstream's bounds would let pass for so few.
func TestScaleUpByRate(t *testing.T) {
	t.Parallel()
	ctx := setup(t, autoscaling.RPS, rate, nil)
	e2e.AssertAutoscaleUpToNumPods(ctx, 1, 8, time.After(upWithin), true)
}

func TestScaleIsSustained(t *testing.T) {
	ctx := setup(t, autoscaling.Concurrency, concurrency, nil)
	if err := e2e.AutoscaleUpToNumPods(ctx, 1, 4, time.After(sustained), false)(); err != nil {
		t.Fatal(err)
	}
}

func TestScaleToZeroIsFast(t *testing.T) {
	t.Parallel()
	ctx := setup(t, autoscaling.Concurrency, concurrency, map[string]string{
		autoscaling.TargetBurstCapacityKey: "-1",
		autoscaling.WindowAnnotationKey:    autoscaling.WindowMin.String(),
	})
	name := sksnames.PrivateService(ctx.Resources().Revision.Name)
	poll(t, upWithin, "no ready address in "+name, func() (bool, error) { return addresses(ctx, name, 0) })
}

// The cluster has one activator: two addresses are the replicas'.
func TestBurstCapacityZeroTakesTheActivatorOut(t *testing.T) {
	t.Parallel()
	ctx := setup(t, autoscaling.Concurrency, concurrency, map[string]string{
		autoscaling.TargetBurstCapacityKey: "0",
		autoscaling.MinScaleAnnotationKey:  "2",
	})
	revision := ctx.Resources().Revision.Name
	poll(t, upWithin, "the two replicas as the public Service's addresses", func() (bool, error) {
		return addresses(ctx, revision, 2)
	})
}

func TestActivationScale(t *testing.T) {
	t.Parallel()
	ctx := setup(t, autoscaling.Concurrency, concurrency, map[string]string{
		autoscaling.ActivationScaleKey: strconv.Itoa(activationScale),
	})
	scaledDown(t, ctx)
	respondsOK(t, ctx)
	poll(t, upWithin, "the activation scale as the desired one", func() (bool, error) {
		resources, err := v1test.GetResourceObjects(ctx.Clients(), *ctx.Names())
		if err != nil {
			return false, err
		}
		desired := resources.Revision.Status.DesiredReplicas
		return desired != nil && *desired == activationScale, nil
	})
}

func TestInitialScale(t *testing.T) {
	t.Parallel()
	clients := e2e.Setup(t)
	names := test.ResourceNames{Config: test.ObjectNameForTest(t), Image: test.HelloWorld}
	test.EnsureTearDown(t, clients, &names)
	e2e.CreateAndVerifyInitialScaleConfiguration(t, clients, names, 3)
}

// untimed are the latencies that e2e.ScaleToWithin wants to report to somebody.
type untimed struct{}

func (untimed) Add(string, time.Time) {}

func TestManyServicesAtOnce(t *testing.T) {
	e2e.ScaleToWithin(t, services, upWithin, untimed{})
}

// setup makes a Service of the class under test that is ready and answers.
func setup(t *testing.T, metric string, target int, annotations map[string]string) *e2e.TestContext {
	t.Helper()
	options := &e2e.AutoscalerOptions{
		Class: *class, Metric: metric, Target: target, TargetUtilization: utilization,
	}
	ctx := e2e.SetupSvc(t, options, test.Options{}, rtesting.WithConfigAnnotations(annotations))
	test.EnsureTearDown(t, ctx.Clients(), ctx.Names())
	return ctx
}

// scaledDown waits for zero replicas and sees that the revision stays ready, as upstream's assertScaleDown.
func scaledDown(t *testing.T, ctx *e2e.TestContext) {
	t.Helper()
	name := revisionnames.Deployment(ctx.Resources().Revision)
	atZero := func(d *appsv1.Deployment) (bool, error) {
		return d.Spec.Replicas != nil && *d.Spec.Replicas == 0 && d.Status.Replicas == 0, nil
	}
	if err := pkgtest.WaitForDeploymentState(context.Background(), ctx.Clients().KubeClient, name, atZero,
		"DeploymentIsScaledDown", test.ServingFlags.TestNamespace, downWithin); err != nil {
		t.Fatalf("Deployment %s does not come to zero: %v", name, err)
	}
	revision := ctx.Resources().Revision.Name
	if err := v1test.CheckRevisionState(ctx.Clients().ServingClient, revision, v1test.IsRevisionReady); err != nil {
		t.Fatalf("Revision %s is not ready at zero: %v", revision, err)
	}
}

func respondsOK(t *testing.T, ctx *e2e.TestContext) {
	t.Helper()
	if _, err := pkgtest.CheckEndpointState(context.Background(), ctx.Clients().KubeClient, t.Logf,
		ctx.Resources().Route.Status.URL.URL(), spoof.MatchesAllOf(spoof.IsStatusOK), "RespondsOK",
		test.ServingFlags.ResolvableDomain); err != nil {
		t.Fatal("No answer:", err)
	}
}

// addresses tells whether the Service has exactly this many ready addresses.
func addresses(ctx *e2e.TestContext, service string, wanted int) (bool, error) {
	slices, err := test.EndpointSlicesForService(ctx.Clients().KubeClient, test.ServingFlags.TestNamespace, service)
	if err != nil {
		return false, err
	}
	return test.ReadyAddressCount(slices) == wanted, nil
}

func poll(t *testing.T, within time.Duration, what string, holds func() (bool, error)) {
	t.Helper()
	condition := func(context.Context) (bool, error) { return holds() }
	if err := wait.PollUntilContextTimeout(context.Background(), pollEvery, within, true, condition); err != nil {
		t.Fatalf("Not within %s: %s: %v", within, what, err)
	}
}
