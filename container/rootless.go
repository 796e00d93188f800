package container

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"

	"eggrun/internal/linux"

	"github.com/moby/sys/user"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// asRootVariable is set in the environment of a process that [AsRoot] has
// started, to the pid of the one that waits for it.
const asRootVariable = "EGGRUN_AS_ROOT_BY"

// IsAsRoot tells whether [AsRoot] has started this process.
func IsAsRoot() bool { return os.Getenv(asRootVariable) == strconv.Itoa(os.Getppid()) }

// AsRoot does what this process was called for in another one, for a caller
// without privileges: the same program with the same arguments, as root of a
// user namespace and in a mount namespace of its own, which is how an engine
// calls us for such a user. It returns false at once for a caller who has the
// privileges, and the status of that process otherwise.
//
// The namespace is a new one, or that of join, which is closed. preserve are
// descriptors to hand on.
func AsRoot(join *os.File, preserve []int) (done bool, status int, err error) {
	if join != nil {
		defer join.Close()
	}
	privileged, err := linux.HasCapability(unix.CAP_SYS_ADMIN)
	if err != nil || privileged {
		return false, 0, err
	}
	exe, err := os.OpenFile("/proc/self/exe", unix.O_PATH, 0)
	if err != nil {
		return false, 0, err
	}
	defer exe.Close()
	request := linux.SpawnRequest{
		Exe: exe, Argv: os.Args, Env: append(os.Environ(), asRootVariable+"="+strconv.Itoa(os.Getpid())),
		JoinUser: join, New: unix.CLONE_NEWNS, MapIDs: mapOwnIDs, Preserve: preserve,
		// What the caller may read by them, the bundle for one, it may still.
		KeepGroups: true,
	}
	if join == nil {
		request.New |= unix.CLONE_NEWUSER
	}
	signals := NotifyAll()
	child, err := linux.SpawnIn(request)
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOSPC) {
		err = fmt.Errorf("user namespace for a caller without privileges: %w; see the sysctls user.max_user_namespaces, kernel.unprivileged_userns_clone and kernel.apparmor_restrict_unprivileged_userns", err)
	}
	if err != nil {
		return false, 0, err
	}
	defer child.Pidfd.Close()
	process, err := linux.FindChild(child.PID)
	if err == nil {
		status, err = waitFor(process, notFromTerminal(signals))
	}
	return true, status, err
}

// notFromTerminal leaves out what a terminal sends: it reaches the other
// process too, which is in the same process group.
func notFromTerminal(signals <-chan os.Signal) <-chan os.Signal {
	const terminal = 0 // standard input
	foreground, err := unix.IoctlGetInt(terminal, unix.TIOCGPGRP)
	if err != nil || foreground != unix.Getpgrp() {
		return signals
	}
	others := make(chan os.Signal)
	go func() {
		for sig := range signals {
			if !slices.Contains([]os.Signal{unix.SIGINT, unix.SIGQUIT, unix.SIGTSTP, unix.SIGHUP}, sig) {
				others <- sig
			}
		}
	}()
	return others
}

// OuterUserNamespace returns the user namespace in which the container was made;
// nil where that can't be told, as for a container that has ended.
func (c *Container) OuterUserNamespace() *os.File {
	own, err := os.Open(fmt.Sprintf("/proc/%d/ns/user", c.state.Init.PID))
	if err != nil {
		return nil
	}
	var base execBase
	if !c.state.Init.Alive() || c.dir.LoadExec(&base) != nil {
		own.Close()
		return nil
	}
	if _, ok := base.Plan.HasNamespace(specs.UserNamespace); !ok {
		return own
	}
	defer own.Close()
	fd, err := unix.IoctlRetInt(int(own.Fd()), unix.NS_GET_PARENT)
	if err != nil {
		return nil
	}
	return os.NewFile(uintptr(fd), "outer user namespace")
}

// mapOwnIDs makes the caller root of a user namespace, and the ids that
// /etc/subuid and /etc/subgid give him the ids from 1 on.
func mapOwnIDs(pid int) error {
	uids, err := user.CurrentUserSubUIDs()
	if err != nil && !hasNone(err) {
		return err
	}
	gids, err := user.CurrentUserSubGIDs()
	if err != nil && !hasNone(err) {
		return err
	}
	newuidmap, uidErr := exec.LookPath("newuidmap")
	newgidmap, gidErr := exec.LookPath("newgidmap")
	if len(uids) == 0 || len(gids) == 0 || uidErr != nil || gidErr != nil {
		return mapOneID(pid)
	}
	if err := helpMap(newuidmap, pid, os.Geteuid(), uids); err != nil {
		return err
	}
	return helpMap(newgidmap, pid, os.Getegid(), gids)
}

// hasNone tells whether the caller has no subordinate ids: there is no file of
// them, or no user of his id.
func hasNone(err error) bool {
	return errors.Is(err, os.ErrNotExist) || errors.Is(err, user.ErrNoPasswdEntries)
}

// helpMap calls newuidmap(1) or newgidmap(1), which may do what we may not.
func helpMap(helper string, pid, own int, ranges []user.SubID) error {
	args := []string{strconv.Itoa(pid), "0", strconv.Itoa(own), "1"}
	next := int64(1)
	for _, r := range ranges {
		args = append(args, strconv.FormatInt(next, 10), strconv.FormatInt(r.SubID, 10), strconv.FormatInt(r.Count, 10))
		next += r.Count
	}
	out, err := exec.Command(helper, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("user namespace: %s: %w: %s", helper, err, strings.Join(strings.Fields(string(out)), " "))
	}
	return nil
}

// mapOneID makes the caller root of a user namespace that has no other ids. The
// kernel lets everybody do that, once groups can no more be dropped there.
func mapOneID(pid int) error {
	proc := "/proc/" + strconv.Itoa(pid) + "/"
	if err := os.WriteFile(proc+"setgroups", []byte("deny"), 0); err != nil {
		return fmt.Errorf("user namespace: %w", err)
	}
	one := func(id int) []specs.LinuxIDMapping {
		return []specs.LinuxIDMapping{{ContainerID: 0, HostID: uint32(id), Size: 1}}
	}
	return writeMaps(pid, one(os.Geteuid()), one(os.Getegid()))
}

// inOwnIDs translates mappings of host ids, as the caller of [AsRoot] sees them,
// to those of the user namespace that we are in.
func inOwnIDs(mappings []specs.LinuxIDMapping, own []user.IDMap) ([]specs.LinuxIDMapping, error) {
	var translated []specs.LinuxIDMapping
	for _, m := range mappings {
		for m.Size > 0 {
			host := int64(m.HostID)
			i := slices.IndexFunc(own, func(o user.IDMap) bool { return o.ParentID <= host && host < o.ParentID+o.Count })
			if i < 0 {
				return nil, fmt.Errorf("user namespace: host id %d is not the caller's; see /etc/subuid and /etc/subgid", host)
			}
			size := min(int64(m.Size), own[i].ParentID+own[i].Count-host)
			translated = append(translated, specs.LinuxIDMapping{
				ContainerID: m.ContainerID, HostID: uint32(own[i].ID + host - own[i].ParentID), Size: uint32(size),
			})
			m.ContainerID, m.HostID, m.Size = m.ContainerID+uint32(size), m.HostID+uint32(size), m.Size-uint32(size)
		}
	}
	return translated, nil
}
