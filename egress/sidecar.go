package egress

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"eggrun/egress/inside"
	"eggrun/egress/resolver"
	"eggrun/internal/seccomp"
	"eggrun/internal/syncsocket"
	"eggrun/policy"
	"eggrun/proxy"

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"
)

// Sidecar is the main function of the sidecar process; it returns when the last
// member of its namespace has ended. args are those that [Launch] gave it, after
// its name.
func Sidecar(args []string) error {
	if len(args) > 0 && args[0] == cageFlag {
		return cage(args[1:])
	}
	if len(args) > 0 && args[0] == killFlag {
		return killer(args[1:])
	}
	control := syncsocket.New(os.NewFile(controlFD, "sidecar control"))
	defer control.Close()
	s, err := prepare(control)
	if err != nil {
		return errors.Join(err, control.SendFailure(err))
	}
	s.start()
	if err := control.Send(kindServing, nil); err != nil {
		return err
	}
	control.Close()
	// Whichever comes first: the end of the last member, or of a front end,
	// after which clients are to be refused and not kept waiting.
	err = <-s.ended
	s.resolver.Close()
	s.writing.Wait()
	return errors.Join(err, s.proxy.Close())
}

// sidecar is what serves one network namespace.
type sidecar struct {
	container string
	proxy     *proxy.DomainProxy
	resolver  *resolver.Server
	audit     *auditFile
	writing   sync.WaitGroup // one for each line of note
	control   net.Listener
	fronts    []func() error
	// noTables is set where nothing but the lack of an interface closes the
	// namespace.
	noTables bool
	ended    chan error

	mu     sync.Mutex
	policy *policy.Policy
	conf   resolver.Conf
	engine resolver.Engine
	// upstream is nil where nobody can be asked.
	upstream *resolver.Nameservers
	members  map[*os.File]string // pidfd → id
}

// prepare waits for the serve message and makes everything that it names, once
// this process is known to be confined.
func prepare(control *syncsocket.Socket) (*sidecar, error) {
	var request serveRequest
	message, err := control.Expect(kindServe, &request)
	if err != nil {
		return nil, err
	}
	if err := seccomp.Load(request.Filter, true); err != nil {
		return nil, err
	}
	if err := checkCaged(request.UID); err != nil {
		return nil, err
	}
	const others = 4
	if len(message.Files) != others+len(request.Sockets) {
		return nil, fmt.Errorf("%d descriptors, want %d", len(message.Files), others+len(request.Sockets))
	}
	s := &sidecar{
		container: request.Container,
		policy:    request.Policy,
		conf:      request.Conf,
		noTables:  request.NoTables,
		ended:     make(chan error, 1),
		members:   make(map[*os.File]string),
	}
	if s.audit, err = newAuditFile(message.Files[0], maxAudit); err != nil {
		return nil, err
	}
	if s.control, err = listenerOf(message.Files[1]); err != nil {
		return nil, err
	}
	sockets := map[string]*os.File{}
	for i, name := range request.Sockets {
		sockets[name] = message.Files[others+i]
	}
	s.resolver, err = resolver.New(resolver.Options{Policy: s.policy, Ledger: message.Files[3], Denied: s.denied, Exhausted: s.exhausted})
	if err != nil {
		return nil, err
	}
	s.proxy = proxy.New(proxy.Options{
		Policy:    s.policy,
		Container: s.container,
		Audit:     s.audit,
		NameOf:    s.resolver.Pool().NameOf,
		UIDOf:     uidOf(sockets[inside.Diag]),
		Quiet:     giveBack,
	})
	if err := s.setUpstream(sockets); err != nil {
		return nil, err
	}
	for name, socket := range sockets {
		if err := s.addFront(name, socket); err != nil {
			return nil, fmt.Errorf("socket %s: %w", name, err)
		}
	}
	return s, s.addMember(s.container, message.Files[2])
}

// giveBack returns the memory of a burst to the kernel, and with it the pipes that
// splicing leaves in a pool: whoever is quiet would otherwise keep them for
// minutes. A pool is emptied by the second collection.
func giveBack() {
	runtime.GC()
	debug.FreeOSMemory()
}

// addFront makes what serves a socket. Each is made of a copy, and the original
// closed: one that is left open would keep clients of a dead proxy waiting.
func (s *sidecar) addFront(name string, socket *os.File) error {
	var serve func(net.Listener) error
	port, isLocal := strings.CutPrefix(name, inside.LocalPrefix)
	switch {
	case name == inside.Proxy4 || name == inside.Proxy6:
		serve = s.proxy.Serve
	case name == inside.Transparent4 || name == inside.Transparent6 || strings.HasPrefix(name, inside.PortPrefix):
		serve = s.proxy.ServeTransparent
	case name == inside.DNSTCP4 || name == inside.DNSTCP6:
		serve = s.resolver.ServeTCP
	case name == inside.DNSUDP4 || name == inside.DNSUDP6:
		conn, err := net.FilePacketConn(socket)
		if err == nil {
			s.fronts = append(s.fronts, func() error { return s.resolver.ServeUDP(conn) })
			err = socket.Close()
		}
		return err
	case isLocal:
		number, err := strconv.ParseUint(port, 10, 16)
		if err != nil {
			return err
		}
		serve = func(l net.Listener) error { return s.proxy.ServeLocal(l, uint16(number)) }
	case name == inside.Links && s.noTables:
		links, err := pollable(socket)
		if err == nil {
			s.fronts = append(s.fronts, func() error { return awaitLink(links) })
		}
		return err
	default:
		return nil // nobody connects to the others
	}
	listener, err := listenerOf(socket)
	if err == nil {
		s.fronts = append(s.fronts, func() error { return serve(listener) })
	}
	return err
}

// awaitLink waits until an interface appears, or changes. The sidecar ends with
// it, and the killer with the container.
func awaitLink(links *os.File) error {
	if _, err := links.Read(make([]byte, 64<<10)); err != nil {
		return err
	}
	return errors.New("an interface has appeared in the network namespace")
}

func listenerOf(f *os.File) (net.Listener, error) {
	l, err := net.FileListener(f)
	if err != nil {
		return nil, err
	}
	return l, f.Close()
}

// start serves everything.
func (s *sidecar) start() {
	for _, serve := range s.fronts {
		go func() { s.end(serve()) }()
	}
	go s.serveControl()
}

// end ends the sidecar; the first one counts.
func (s *sidecar) end(err error) {
	select {
	case s.ended <- err:
	default:
	}
}

// setUpstream makes what asks the engine's resolver, by sockets that were opened
// inside.
func (s *sidecar) setUpstream(sockets map[string]*os.File) error {
	s.engine = resolver.Engine{Search: s.conf.Search}
	var files []*os.File
	for _, name := range []string{inside.EngineUDP4, inside.EngineTCP4, inside.EngineUDP6, inside.EngineTCP6} {
		if f := sockets[name]; f != nil {
			files = append(files, f)
		}
	}
	if len(files) > 0 {
		upstream, err := resolver.NewNameservers(files, s.conf.Nameservers)
		if err != nil {
			return err
		}
		s.upstream, s.engine.Upstream = upstream, upstream
	}
	s.resolver.SetEngine(s.engine)
	s.applyPolicy()
	return nil
}

// setEngine says who is reached directly, and who knows their names.
func (s *sidecar) setEngine(b *brought) {
	s.mu.Lock()
	defer s.mu.Unlock()
	peers := b.Peers
	if b.Conf != nil {
		s.engine.Search = b.Conf.Search
		s.applyPolicy()
		if s.upstream != nil {
			s.upstream.SetServers(b.Conf.Nameservers)
		}
	}
	s.engine.IsPeer = nil
	if len(peers) > 0 { // else no answer would count, and nobody need be asked
		s.engine.IsPeer = func(a netip.Addr) bool {
			return slices.ContainsFunc(peers, func(r inside.Range) bool { return r.Contains(a) })
		}
	}
	s.resolver.SetEngine(s.engine)
}

// uidOf asks the kernel, by a descriptor that was opened inside, who holds a
// socket there.
func uidOf(diag *os.File) func(local, remote netip.AddrPort) (int, bool) {
	if diag == nil {
		return nil
	}
	var mu sync.Mutex
	return func(local, remote netip.AddrPort) (int, bool) {
		mu.Lock()
		defer mu.Unlock()
		owner, err := inside.UIDOf(diag, local, remote)
		return int(owner.UID), err == nil
	}
}

// addMember keeps the sidecar alive as long as a process lives.
func (s *sidecar) addMember(id string, pidfd *os.File) error {
	watched, err := pollable(pidfd)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.members[watched] = id
	go func() {
		err := awaitPidfd(watched)
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.members, watched)
		watched.Close()
		if len(s.members) == 0 || err != nil {
			s.end(err)
		}
	}()
	return nil
}

// pollable returns f in a form that Go's poller waits for, which takes no
// thread, and closes the other.
func pollable(f *os.File) (*os.File, error) {
	defer f.Close()
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("dup", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		unix.Close(fd)
		return nil, os.NewSyscallError("set nonblocking", err)
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}

// awaitPidfd waits until a process has ended.
func awaitPidfd(pidfd *os.File) error {
	raw, err := pidfd.SyscallConn()
	if err != nil {
		return err
	}
	return raw.Read(hasEnded)
}

// hasEnded tells whether the process of a pidfd has ended.
func hasEnded(pidfd uintptr) bool {
	poll := []unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}
	n, err := unix.Poll(poll, 0)
	return err == nil && n > 0
}

// alive are the ids of the members that have not ended.
func (s *sidecar) alive() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	ids := []string{}
	for pidfd, id := range s.members {
		if raw, err := pidfd.SyscallConn(); err == nil {
			_ = raw.Control(func(fd uintptr) {
				if !hasEnded(fd) {
					ids = append(ids, id)
				}
			})
		}
	}
	return ids
}

// setPolicy replaces the policy, everywhere at once.
func (s *sidecar) setPolicy(p *policy.Policy) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.policy = p
	s.applyPolicy()
}

// applyPolicy tells everybody the policy, which covers no made-up name of the
// container's network. s.mu is held, or nothing is served yet.
func (s *sidecar) applyPolicy() {
	p := *s.policy
	p.SearchDomains = s.engine.Search
	s.resolver.SetPolicy(&p)
	s.proxy.SetPolicy(&p)
}

// denied notes a name that was refused before there was a connection.
func (s *sidecar) denied(name string, qtype dnsmessage.Type) {
	s.note(name, map[string]any{"reason": policy.ReasonNotListed, "type": strings.TrimPrefix(qtype.String(), "Type")})
}

// reasonNoAddress is that of a name that is allowed, and got no fake address.
const reasonNoAddress policy.Reason = "no_address"

// exhausted notes that names get no fake addresses any more, or for now.
func (s *sidecar) exhausted(name string, cause error) {
	s.note(name, map[string]any{"reason": reasonNoAddress, "cause": cause.Error()})
}

// note writes a line about a name that was refused.
func (s *sidecar) note(name string, line map[string]any) {
	maps.Copy(line, map[string]any{
		"time": time.Now().UTC().Format(time.RFC3339Nano), "container": s.container, "event": "decision",
		"proto": "dns", "host": name, "decision": "deny",
	})
	text, err := json.Marshal(line)
	if err == nil {
		// A client waits; the resolver tells us a hundred names a minute.
		s.writing.Go(func() { _, _ = s.audit.Write(append(text, '\n')) })
	}
}
