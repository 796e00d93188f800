package integration

import (
	"strings"
	"testing"
)

// podmanReverse asks podman's resolver for the name of a neighbour's address, by
// way of eggrun's. Where there is no neighbour it is not asked. The control has no
// policy.
func podmanReverse(t *testing.T, p *podman) {
	network := p.network()
	name := network + "web"
	web := p.detach("--network", network, "--name", name, image, "sleep", "1000")
	address := p.ok("inspect", "--format", "{{(index .NetworkSettings.Networks \""+network+"\").IPAddress}}", web)
	options := append([]string{"--no-hosts", "--network", network}, p.walled()...)
	got := p.output("nslookup "+address+"; nslookup "+name, options...)
	// Some versions of the resolver put the root in the place of the question.
	if !strings.Contains(got, "name = "+name) && !strings.Contains(got, "name = "+web[:12]) {
		t.Errorf("no name for %s: %s", address, got)
	}
	contains(t, "by name", got, "Address: "+address)
	if p.rt.isEggrun() {
		contains(t, "an address of nobody here", p.output("nslookup 192.0.2.1 2>&1; true", options...), "NXDOMAIN")
	}
}
