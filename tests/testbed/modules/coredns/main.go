// Command coredns is the DNS server of the testbed with the few plugins that a cluster's names need.
package main

import (
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"

	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/health"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/ready"
)

// A query passes the plugins in this order.
var directives = []string{"ready", "health", "errors", "kubernetes"}

func main() {
	dnsserver.Directives = directives
	coremain.Run()
}
