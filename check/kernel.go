package check

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

const kernelGroup = "kernel"

// kernel checks the kernel, and what whoever runs us lets us do with it.
func (c *checker) kernel(ctx context.Context) error {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return os.NewSyscallError("uname", err)
	}
	c.add(kernelVersion(unix.ByteSliceToString(name.Release[:])))
	c.add(seccompActions(c.read("/proc/sys/kernel/seccomp/actions_avail"))...)
	if c.Quick {
		return nil
	}
	err := c.tryUserNamespace(ctx)
	c.add(c.userNamespace(err))
	if err != nil && !c.privileged {
		return nil // the rest would fail for that reason alone
	}
	dir, err := os.MkdirTemp(c.dir, "try-")
	if err != nil {
		return err
	}
	outcomes, err := c.tryAll(ctx, dir)
	if err != nil {
		return fmt.Errorf("try what the kernel can do: %w", err)
	}
	c.tables = outcomes[tablesTry].Err == ""
	c.add(judgeTries(outcomes)...)
	return nil
}

func kernelVersion(release string) Result {
	r := Result{Group: kernelGroup, Name: "version", Status: OK, Cause: "Linux " + release}
	if older(release, 5, 12) {
		r.Status, r.Fix = Bad, "install a kernel from Linux 5.12 on: mount_setattr is new there"
	}
	return r
}

// seccompActions judges /proc/sys/kernel/seccomp/actions_avail.
func seccompActions(available string) []Result {
	filters := Result{Group: kernelGroup, Name: "seccomp filters", Status: OK}
	notify := Result{Group: kernelGroup, Name: "seccomp agents", Status: OK}
	switch actions := strings.Fields(available); {
	case !slices.Contains(actions, "errno"):
		filters.Status = Bad
		filters.Cause = "/proc/sys/kernel/seccomp/actions_avail does not list errno"
		filters.Fix = "use a kernel with CONFIG_SECCOMP_FILTER, and mount /proc"
	case !slices.Contains(actions, "user_notif"):
		notify.Status = Missing
		notify.Cause = "the kernel has no user_notif; profiles with SCMP_ACT_NOTIFY are refused"
		notify.Fix = "use a kernel from Linux 5.0 on"
	}
	return []Result{filters, notify}
}

// self is this program with arguments, as root of a new user namespace with no
// other id for a caller without privileges.
func (c *checker) self(ctx context.Context, inUserNamespace bool, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, c.Exe, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL}
	if inUserNamespace {
		one := func(id int) []syscall.SysProcIDMap { return []syscall.SysProcIDMap{{HostID: id, Size: 1}} }
		cmd.SysProcAttr.Cloneflags = unix.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings, cmd.SysProcAttr.GidMappings = one(os.Geteuid()), one(os.Getegid())
	}
	return cmd
}

func (c *checker) tryUserNamespace(ctx context.Context) error {
	return c.self(ctx, true, "--version").Run()
}

// userNamespace says why there is no user namespace to be had.
func (c *checker) userNamespace(err error) Result {
	r := Result{Group: kernelGroup, Name: "user namespace", Status: OK}
	if err == nil {
		return r
	}
	var failed *os.PathError // "fork/exec", as package os calls it
	if errors.As(err, &failed) {
		err = os.NewSyscallError("clone", failed.Err)
	}
	r.Status, r.Cause = Bad, oneLine(err.Error())
	if c.privileged {
		r.Status = Missing
		r.Cause += "; only containers with one, and rootless engines, need it"
	}
	for _, known := range []struct{ sysctl, off, fix string }{
		{"user.max_user_namespaces", "0", "sysctl -w user.max_user_namespaces=15000"},
		{"kernel.unprivileged_userns_clone", "0", "sysctl -w kernel.unprivileged_userns_clone=1"},
		// The profile says nothing but that this program may.
		{"kernel.apparmor_restrict_unprivileged_userns", "1", fmt.Sprintf(
			"printf 'abi <abi/4.0>,\\nprofile eggrun %s flags=(unconfined) { userns, }\\n' >/etc/apparmor.d/eggrun && apparmor_parser -r /etc/apparmor.d/eggrun", c.Exe)},
	} {
		if c.read("/proc/sys/"+strings.ReplaceAll(known.sysctl, ".", "/")) == known.off {
			r.Cause = fmt.Sprintf("%s; the sysctl %s is %s", r.Cause, known.sysctl, known.off)
			r.Fix = known.fix
			return r
		}
	}
	r.Fix = "allow clone and unshare with CLONE_NEWUSER in the seccomp profile or security module that this runs under"
	return r
}

// tryAll makes all tries in another process. dir is an empty directory.
func (c *checker) tryAll(ctx context.Context, dir string) (map[string]outcome, error) {
	cmd := c.self(ctx, !c.privileged, "check", TryArgument, dir)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, errors.Join(err, errors.New(oneLine(stderr.String())))
	}
	var outcomes map[string]outcome
	return outcomes, json.Unmarshal(out, &outcomes)
}

// judgeTries says what each try means.
func judgeTries(outcomes map[string]outcome) []Result {
	var results []Result
	for _, try := range tries() {
		o, made := outcomes[try.name]
		r := Result{Group: kernelGroup, Name: try.name, Status: OK, Cause: o.Detail}
		if !made {
			o.Err = "not tried"
		}
		if o.Err != "" {
			r.Status, r.Cause, r.Fix = Bad, oneLine(o.Err), try.fix
			if try.without != "" {
				r.Status = Missing
				r.Cause += "; " + try.without
			}
		}
		results = append(results, r)
	}
	return results
}
