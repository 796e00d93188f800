package egress

import (
	"errors"
	"fmt"
	"net/netip"
	"os"

	"eggrun/egress/inside"
	"eggrun/egress/resolver"
	"eggrun/internal/linux"
	"eggrun/policy"
	"eggrun/sandbox"
)

// Kept is what later verbs need of [Prepared] beside the policy.
type Kept struct {
	// ProxyEnv tells whether the environment names the proxy.
	ProxyEnv bool `json:"proxyEnv,omitempty"`
	// Nameservers are the engine's.
	Nameservers []netip.Addr `json:"nameservers,omitempty"`
	// Unsettled is nil where all was known at create, and after start.
	Unsettled *Unsettled `json:"unsettled,omitempty"`
}

// Unsettled is what start decides. Docker and buildah add their interfaces to a
// network namespace that was made for the container, and write what the container
// is to ask, after create has been called; podman 5 does the latter.
type Unsettled struct {
	// ProxyEnv tells whether the environment names the proxy only if the
	// namespace stays closed.
	ProxyEnv bool `json:"proxyEnv,omitempty"`
	// EngineConf is the engine's resolv.conf, "" for none, and OwnConf the one
	// that is mounted in its place. Both are files of the host.
	EngineConf string `json:"engineConf,omitempty"`
	OwnConf    string `json:"ownConf,omitempty"`
}

// settle brings k up to date in a namespace that has been opened since create,
// and returns what the engine's resolv.conf says by now.
func (k *Kept) settle() (*resolver.Conf, error) {
	conf := &resolver.Conf{}
	if k.Unsettled.EngineConf != "" {
		var err error
		if conf, err = readConfFile(k.Unsettled.EngineConf); err != nil {
			return nil, err
		}
	}
	// In place, for that is what is mounted.
	if err := os.WriteFile(k.Unsettled.OwnConf, []byte(ownConf(conf, false)), 0o644); err != nil {
		return nil, err
	}
	k.Nameservers = conf.Nameservers
	k.ProxyEnv = k.ProxyEnv && !k.Unsettled.ProxyEnv
	return conf, nil
}

// Kept returns what is to be kept.
func (p *Prepared) Kept() *Kept {
	return &Kept{ProxyEnv: p.ProxyEnv, Nameservers: p.conf.Nameservers, Unsettled: p.unsettled}
}

// Started makes sure that the wall stands when a container's program is about to
// be started, and finds out who is on-link by then. init is the container's,
// entry that of its namespace. What was unsettled in k is settled.
func Started(init linux.Process, entry string, own *policy.Policy, k *Kept) error {
	p, netNS, err := openWalled(init, entry, own)
	if err != nil {
		return err
	}
	defer netNS.Close()
	var now brought
	isOpen := inside.CheckClosedIn(netNS) != nil
	if isOpen {
		if err := checkPasta(netNS); err != nil {
			return err
		}
	}
	if k.Unsettled != nil {
		if isOpen {
			if now.Conf, err = k.settle(); err != nil {
				return fmt.Errorf("%s: %w", resolvConf, err)
			}
		}
		k.Unsettled = nil
	}
	w := wall(p, k.Nameservers)
	if w.Host, err = inside.Addresses(); err != nil {
		return err
	}
	err = inside.Within(netNS, func() (err error) {
		// In a closed namespace nobody is on-link, so that the rules need not be
		// made anew, for which the kernel takes milliseconds.
		if err := inside.Recheck(w, isOpen); err != nil {
			return err
		}
		now.Peers, err = inside.PeerRanges(w)
		return err
	})
	if err != nil {
		return networkError(err)
	}
	return ask(entry, kindBrought, now, nil)
}

// Executed makes sure that the wall stands when a further program is about to be
// started.
func Executed(init linux.Process, entry string, own *policy.Policy, k *Kept) error {
	p, netNS, err := openWalled(init, entry, own)
	if err != nil {
		return err
	}
	defer netNS.Close()
	return networkError(inside.Within(netNS, func() error { return inside.Recheck(wall(p, k.Nameservers), false) }))
}

// openWalled returns the policy of init's network namespace, and that.
func openWalled(init linux.Process, entry string, own *policy.Policy) (*policy.Policy, *os.File, error) {
	p, err := currentPolicy(entry, own)
	if err != nil {
		return nil, nil, err
	}
	netNS, err := openNetNS(init.PID)
	return p, netNS, networkError(err)
}

// currentPolicy returns the policy of a namespace, which may have been replaced
// since a member's own was kept.
func currentPolicy(entry string, own *policy.Policy) (*policy.Policy, error) {
	r, err := loadRecord(entry)
	if err != nil || r == nil {
		return own, err
	}
	return r.Policy, nil
}

// networkError says what an error is about, unless it says so itself.
func networkError(err error) error {
	if err == nil || errors.As(err, new(*sandbox.EnforcementError)) {
		return err
	}
	return fmt.Errorf("network namespace: %w", err)
}
