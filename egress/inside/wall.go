package inside

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"slices"

	"eggrun/internal/linux"
	"eggrun/policy"
	"eggrun/sandbox"

	"golang.org/x/sys/unix"
)

// Wall is what a container's network namespace is held to. All of it is given by
// the caller, who stands outside; nothing is read from the container.
type Wall struct {
	// LocalPorts are ports of the host's 127.0.0.1 that appear on the
	// namespace's.
	LocalPorts []uint16
	// Peers is what is reached directly.
	Peers policy.Peers
	// Inbound is who may connect to the container.
	Inbound policy.Inbound
	// Transparent sends TCP connections to any other address to the sidecar.
	Transparent bool
	// Ports are those that the rules name. They matter only to kernels without
	// nftables, where a connection to another one is refused, and asks the proxy.
	Ports []uint16
	// Resolvers are the engine's, as it wrote them into the container's
	// resolv.conf. The sockets named Engine… may ask them, and nobody else.
	Resolvers []netip.Addr
	// Host are the addresses of the host, of every interface, which are nobody's
	// peer; see [Addresses].
	Host []netip.Addr
	// New says that the namespace was made for this container, so that nobody
	// can have a socket in it.
	New bool
	// Members says that programs are behind a wall whose sidecar alone has gone.
	// It keeps the peers that they have.
	Members bool
}

// Build makes the wall in the calling thread's network namespace and returns the
// sockets that the sidecar serves. Clients can connect from then on; the kernel
// queues them until somebody accepts.
//
// It needs CAP_NET_ADMIN and CAP_NET_BIND_SERVICE over the namespace. The
// interfaces that are there, or come, stay as they are. Nothing is on-link
// before [Recheck] at start, since engines add interfaces until then.
//
// What can't be walled in is an [sandbox.EnforcementError]: programs that have
// open connections already, a port that is taken, and, for a kernel without
// nftables, a way out.
func Build(w *Wall) (*Sockets, error) {
	return w.build(func() error { return w.install(merge(named(w.Peers.Prefixes)), nil) })
}

// build is [Build] with the way to install the table.
func (w *Wall) build(install func() error) (*Sockets, error) {
	// Who was in the namespace before, with the right to, may have left a table
	// with the rules of ours and with peers of its own.
	complete := w.Members && w.isComplete()
	if !complete && !w.New {
		// Connections that are older than the table would pass it by.
		if err := checkUnused(); err != nil {
			return nil, err
		}
	}
	// From here on nothing leaves, before anything can be asked for.
	var err error
	if !complete {
		err = install()
	}
	tables := err == nil
	if errors.Is(err, errNoTables) {
		err = CheckClosed()
	}
	if err != nil {
		return nil, err
	}
	if err := setUpLoopback(); err != nil {
		return nil, err
	}
	return w.open(tables)
}

// setUpLoopback brings lo up and the addresses of the resolver onto it.
func setUpLoopback() error {
	if err := LoopbackUp(); err != nil {
		return err
	}
	// An address and not only a route: where there is none but 127.0.0.1, C
	// libraries find no name for programs that ask for what they can use
	// (AI_ADDRCONFIG).
	own := netip.PrefixFrom(policy.FakeRange.Addr().Next(), policy.FakeRange.Bits()) // the resolver's
	if err := linux.AddAddress(loopbackIndex, linux.NewAddress(own)); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("address %s: %w", own, err)
	}
	return nil
}

// Recheck makes sure, when a program is about to be started in it, that the
// wall stands in the calling thread's network namespace, and puts up what is
// missing, in one transaction. What was walled before is not believed.
//
// At a container's start, when the engine has added its interfaces, it also
// finds out who is on-link. Nobody becomes a peer later: not by an interface
// that is added to a running container.
func Recheck(w *Wall, atStart bool) error {
	peers, inbound := merge(named(w.Peers.Prefixes)), []Range(nil)
	err := setUpLoopback()
	if err != nil {
		return err
	}
	if atStart {
		peers, inbound, err = w.onLink()
	} else if w.isComplete() {
		return nil
	}
	if err == nil {
		err = w.install(peers, inbound)
	}
	if errors.Is(err, errNoTables) {
		return CheckClosed()
	}
	return err
}

// PeerRanges returns what the calling thread's network namespace reaches
// directly: what [Recheck] puts into the table at start.
func PeerRanges(w *Wall) ([]Range, error) {
	peers, _, err := w.onLink()
	return peers, err
}

// onLink returns who is reached directly, and whose networks may connect.
func (w *Wall) onLink() (peers, inbound []Range, err error) {
	peers = named(w.Peers.Prefixes)
	if !w.Peers.OnLink && !w.Inbound.OnLink {
		return merge(peers), nil, nil
	}
	links, err := listLinks()
	if err != nil {
		return nil, nil, err
	}
	if err := listAddresses(links); err != nil {
		return nil, nil, err
	}
	networks, err := subnets(links)
	if err != nil {
		return nil, nil, err
	}
	hops, err := nextHops()
	if err != nil {
		return nil, nil, err
	}
	if w.Peers.OnLink {
		peers = append(peers, neighbourRanges(networks, slices.Concat(w.Host, w.Resolvers, hops))...)
	}
	if w.Inbound.OnLink {
		for _, n := range networks {
			inbound = append(inbound, rangeOf(n))
		}
	}
	return merge(peers), merge(inbound), nil
}

// Within calls do on a thread that has joined the network namespace, and that
// ends with it: it may not be allowed to go back. The error wraps an errno where
// the namespace can't be joined.
func Within(netNS *os.File, do func() error) error {
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked
		err := unix.Setns(int(netNS.Fd()), unix.CLONE_NEWNET)
		// Deferred, for a test that fails ends its goroutine.
		defer func() { result <- err }()
		if err != nil {
			err = os.NewSyscallError("join network namespace", err)
			return
		}
		err = do()
	}()
	return <-result
}

// CheckClosedIn is [CheckClosed] for another network namespace, given by its
// file.
func CheckClosedIn(netNS *os.File) error { return Within(netNS, CheckClosed) }

// checkUnused returns an [sandbox.EnforcementError] when somebody has a
// connection in the calling thread's network namespace.
func checkUnused() error {
	n, err := countConnected()
	if err != nil {
		return fmt.Errorf("list sockets of the network namespace: %w", err)
	}
	if n == 0 {
		return nil
	}
	return &sandbox.EnforcementError{
		Gaps:     []string{fmt.Sprintf("domains: the network namespace has %d open connections from before the policy", n)},
		Platform: "give the first container that joins it the policy, or a network namespace of its own",
	}
}
