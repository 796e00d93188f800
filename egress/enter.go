package egress

import (
	"errors"
	"net/netip"
	"os"

	"eggrun/egress/inside"
	"eggrun/internal/linux"
	"eggrun/policy"

	"golang.org/x/sys/unix"
)

// Member is a container that is to be behind the wall.
type Member struct {
	ID string
	// Asked tells whether it asked for its policy, which it has from a file
	// otherwise.
	Asked bool
	// Init is a pidfd of its first process, and Process that itself.
	Init    *os.File
	Process linux.Process
	// CacheDir is where the sidecar's filter is kept, see
	// [eggrun/internal/seccomp.Compile].
	CacheDir string
	// Launch returns a sidecar, where one is needed.
	Launch func() (*Launched, error)
	// Note is told the entry in the registry before it is made, for
	// [Leave].
	Note func(entry string) error
}

// IsServed tells whether the namespace has a sidecar, which a further member
// joins.
func (n *Network) IsServed() bool { return n.served }

// IsNew tells whether the namespace is yet to be made, by the container's init.
func (n *Network) IsNew() bool { return n.file == nil }

// Wall returns what the namespace is held to.
func (p *Prepared) Wall() *inside.Wall {
	w := wall(p.Policy, p.conf.Nameservers)
	w.New = p.Network.IsNew()
	return w
}

func wall(p *policy.Policy, nameservers []netip.Addr) *inside.Wall {
	return &inside.Wall{
		LocalPorts:  p.LocalPorts,
		Peers:       p.Peers,
		Inbound:     p.Inbound,
		Transparent: p.Transparent,
		Ports:       p.Allowlist.Ports(),
		Resolvers:   nameservers,
	}
}

// Enter makes m a member of a namespace that was there before: of those whom its
// sidecar serves, or the first one, with a new sidecar behind a wall that is
// built now. It returns the sidecar.
func (p *Prepared) Enter(m *Member) (linux.Process, error) {
	e, err := p.lock(m)
	if err != nil {
		return linux.Process{}, err
	}
	defer e.close()
	r, err := e.load()
	if err != nil {
		return linux.Process{}, err
	}
	var others []memberRecord
	if r != nil && r.binds() {
		others = r.living()
		err := p.join(e, r, m)
		if err == nil || !errors.Is(err, errControl) {
			return r.Sidecar, err
		}
		// It was killed, or its last member has just ended.
		if err := awaitEnd(r.Sidecar); err != nil {
			return linux.Process{}, err
		}
	}
	var sockets *inside.Sockets
	w := p.Wall()
	w.Members = len(others) > 0
	err = inside.Within(p.Network.file, func() (err error) {
		sockets, err = inside.Build(w)
		return err
	})
	if err != nil {
		return linux.Process{}, err
	}
	defer sockets.Close()
	return p.serve(e, m, others, sockets)
}

// EnterNew makes m the first member of a namespace of its own, in which its init
// has built the wall and opened the sockets.
func (p *Prepared) EnterNew(m *Member, sockets *inside.Sockets) (linux.Process, error) {
	cookie, err := inside.Cookie(sockets.All[0].File)
	if err == nil {
		p.Network.entry, err = entryDir(p.Network.where.registry(), cookie)
	}
	if err != nil {
		return linux.Process{}, err
	}
	e, err := p.lock(m)
	if err != nil {
		return linux.Process{}, err
	}
	defer e.close()
	return p.serve(e, m, nil, sockets)
}

func (p *Prepared) lock(m *Member) (*entry, error) {
	if err := m.Note(p.Network.entry); err != nil {
		return nil, err
	}
	prune(p.Network.where.registry())
	return lockEntry(p.Network.entry)
}

// serve starts a sidecar for a namespace that has none, any more where there are
// other members.
func (p *Prepared) serve(e *entry, m *Member, others []memberRecord, sockets *inside.Sockets) (_ linux.Process, err error) {
	auditPath, err := AuditPath(m.ID, p.Network.where)
	if err != nil {
		return linux.Process{}, err
	}
	audit, err := openAudit(auditPath)
	if err != nil {
		return linux.Process{}, err
	}
	defer audit.Close()
	control, err := e.listen()
	if err != nil {
		return linux.Process{}, err
	}
	defer control.Close()
	ledger, err := e.openLedger()
	if err != nil {
		return linux.Process{}, err
	}
	defer ledger.Close()
	filter, err := sidecarFilter(m.CacheDir)
	if err != nil {
		return linux.Process{}, err
	}
	launched, err := m.Launch()
	if err != nil {
		return linux.Process{}, err
	}
	request := &serveRequest{
		Container: m.ID, Policy: p.Policy, Filter: filter, NoTables: sockets.NoTables, Conf: *p.conf,
	}
	process, err := launched.serve(request, &handed{audit, control, m.Init, ledger}, sockets.All)
	if err != nil {
		return linux.Process{}, err
	}
	p.NoTables = sockets.NoTables
	r := &record{
		Sidecar: process, Container: m.ID, Audit: auditPath, Policy: p.Policy, Asked: m.Asked || p.Network.asked, NoTables: p.NoTables,
		Members: append(others, m.record()),
	}
	if err := e.save(r); err != nil {
		return process, err
	}
	return process, handOver(e, others)
}

// handOver makes members of a sidecar that has ended those of its successor.
func handOver(e *entry, members []memberRecord) error {
	for _, m := range members {
		pidfd, err := m.Init.Open()
		if errors.Is(err, unix.ESRCH) {
			continue
		}
		if err != nil {
			return err
		}
		err = ask(e.dir, kindJoin, m.ID, nil, pidfd)
		pidfd.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

func (m *Member) record() memberRecord { return memberRecord{m.ID, m.Process} }

// awaitEnd waits for the end of a sidecar that has no members any more.
func awaitEnd(sidecar linux.Process) error {
	pidfd, err := sidecar.Open()
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return err
	}
	defer pidfd.Close()
	const patience = 2_000 // milliseconds
	ended, err := linux.PidfdWait(pidfd, patience)
	if err == nil && !ended {
		err = linux.PidfdSignal(pidfd, unix.SIGKILL)
		if err == nil {
			_, err = linux.PidfdWait(pidfd, patience)
		}
	}
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	return err
}

// Leave is called when a member has ended: it waits for the sidecar, so that its
// audit is written, unless that serves others, and removes what is left of it.
// entry is what [Member.Note] was told.
func Leave(entry string, sidecar linux.Process) error {
	if entry == "" {
		return awaitEnd(sidecar)
	}
	e, err := lockExisting(entry)
	if errors.Is(err, os.ErrNotExist) {
		return awaitEnd(sidecar)
	}
	if err != nil {
		return err
	}
	defer e.close()
	if members, err := countMembers(e.dir); err == nil && members > 0 {
		return nil
	}
	r, err := e.load()
	if err != nil {
		return err
	}
	if r == nil {
		r = &record{Sidecar: sidecar}
	}
	if len(r.living()) > 0 {
		return nil // the sidecar was killed
	}
	if err := awaitEnd(r.Sidecar); err != nil {
		return err
	}
	return e.remove()
}

// join makes m one of those whom the sidecar of r serves. The error is
// [errControl] where that has ended.
func (p *Prepared) join(e *entry, r *record, m *Member) error {
	// Somebody may have come first since the namespace was looked at.
	p.Network.take(r)
	agreed, err := p.Network.Agree(p.Policy, m.Asked)
	if err != nil {
		return err
	}
	p.Policy, p.NoTables = agreed, r.NoTables
	// Before it is one, like everything that a crash may leave behind.
	r.Members = append(r.living(), m.record())
	if err := e.save(r); err != nil {
		return err
	}
	if err := ask(e.dir, kindJoin, m.ID, nil, m.Init); err != nil {
		return err
	}
	if m.Asked && !r.Asked {
		if err := replace(e, r, agreed); err != nil {
			return err
		}
	}
	path, err := AuditPath(m.ID, p.Network.where)
	if err != nil {
		return err
	}
	return linkAudit(path, r.Audit)
}
