package check

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"eggrun/egress"
	"eggrun/spec"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

const wallGroup = "wall"

// wall makes a container with a list and lets it try to get out.
func (c *checker) wall(ctx context.Context) error {
	if c.Quick {
		return nil
	}
	s, err := serve(c.read("/etc/hosts"))
	if err != nil {
		return fmt.Errorf("servers for the wall to be tried with: %w", err)
	}
	defer func() { c.remember(s.Close()) }()
	t := trial{outside: map[string]answers{}, listed: true, tables: c.tables}
	for _, a := range attempts() {
		if a.control {
			t.outside[a.name] = a.make(&s.targets)
		}
	}
	found, audit, failure, err := c.tryContainer(ctx, &s.targets, strings.Join(s.list, " "))
	if err != nil || ctx.Err() != nil {
		return err
	}
	if failure != "" {
		// A policy file may not allow our server; the empty list it does.
		var again string
		if found, audit, again, err = c.tryContainer(ctx, &s.targets, ""); err != nil {
			return err
		}
		if again != "" || !strings.Contains(failure, "policy") {
			c.add(brokenContainer(failure))
			return nil
		}
		t.listed = false
	}
	t.found = found
	c.add(Result{Group: wallGroup, Name: "container", Status: OK, Cause: "made, run and deleted"})
	c.add(t.judge()...)
	c.add(judgeAudit(audit))
	return nil
}

// brokenContainer says why there was no container, with the advice that the
// message ends in.
func brokenContainer(failure string) Result {
	r := Result{wallGroup, "container", Bad, failure, "mend what the lines above say is bad or missing"}
	if i := strings.LastIndex(failure, "; "); i > 0 {
		r.Cause, r.Fix = failure[:i], failure[i+2:]
	}
	return r
}

// trial is what came of all attempts.
type trial struct {
	// found is what came of those inside, outside of the same on the host, for
	// those with a control.
	found, outside map[string]answers
	// listed says that our servers could be put on the list, tables that the
	// kernel has nftables.
	listed, tables bool
}

// judge says what came of each attempt.
func (t *trial) judge() []Result {
	var results []Result
	for _, a := range attempts() {
		r := Result{Group: wallGroup, Name: a.name, Status: OK}
		switch {
		case a.reached && !t.listed:
			r.Status, r.Cause = Missing, "not tried: the policy file does not allow the servers of this check"
			r.Fix = "none needed; to try it, add localhost:* and *.eggrun-check.invalid to the [limit] for this user"
		case a.reached && a.tables && !t.tables:
			r.Status, r.Cause, r.Fix = Missing, "not to be had without nftables", "see the line about nftables"
		case len(t.found[a.name]) == 0:
			r.Status, r.Cause, r.Fix = Missing, "not tried: this host has no such address, or name in /etc/hosts", "none needed; to try it, add 127.0.1.1 and the host's name to /etc/hosts, or enable IPv6"
		case a.reached:
			a.judgeReached(&r, t.found[a.name])
		default:
			t.judgeRefused(&a, &r)
		}
		results = append(results, r)
	}
	return results
}

func (a *attempt) judgeReached(r *Result, found answers) {
	for _, refused := range found {
		if refused != "" {
			r.Status, r.Cause = Bad, refused
			r.Fix = "see the lines above, and what /var/log/eggrun says; what is listed must be reached"
			return
		}
	}
	r.Cause = "reached"
}

// report is what to do when the wall has a hole.
const report = "run no container with a list on this machine, and tell the maintainers in private, see SECURITY.md"

func (t *trial) judgeRefused(a *attempt, r *Result) {
	found, outside, wanted := t.found[a.name], t.outside[a.name], a.refusal
	switch {
	case a.tables && !t.tables:
		wanted = ""
	// With an empty list there are no other ports.
	case !t.listed && a.tables:
		wanted = "no such host"
	case !t.listed && wanted == "port_not_listed":
		wanted = "not_listed"
	}
	for _, address := range sortedKeys(found) {
		refused := found[address]
		switch {
		case refused == "":
			r.Status, r.Cause, r.Fix = Bad, "the container reached "+address, report
			return
		case !strings.Contains(refused, wanted):
			r.Status, r.Cause = Bad, fmt.Sprintf("refused without the reason %s: %s", wanted, refused)
			r.Fix = "see whether this program and its sidecar are the same version"
			return
		case a.control && outside[address] != "":
			r.Status, r.Cause = Missing, fmt.Sprintf("shows nothing, since the host does not reach %s either: %s", address, outside[address])
			r.Fix = "allow connections from this host to itself in its firewall, to try it"
			return
		case r.Cause == "":
			r.Cause = "refused: " + refused
		}
	}
}

func sortedKeys(found answers) []string {
	var keys []string
	for key := range found {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

// judgeAudit looks for the refusals in the audit log.
func judgeAudit(audit string) Result {
	r := Result{Group: wallGroup, Name: "audit", Status: OK, Cause: "every refusal has its line"}
	for line := range strings.Lines(audit) {
		var entry struct{ Host, Decision string }
		if json.Unmarshal([]byte(line), &entry) == nil && entry.Host == denied && entry.Decision == "deny" {
			return r
		}
	}
	r.Status, r.Cause, r.Fix = Bad, "the refused name is not in the audit log", "see whether the disk with the audit log is full"
	return r
}

// tryContainer makes a container with the list in which [Attempt] runs, and
// returns what came of it and what the audit log says. failure is why there was
// no container. Nothing is left of it, whatever happens.
func (c *checker) tryContainer(ctx context.Context, t *targets, list string) (found map[string]answers, audit, failure string, err error) {
	bundle, err := os.MkdirTemp(c.dir, "bundle-")
	if err != nil {
		return nil, "", "", err
	}
	if err := c.writeBundle(bundle, t, list); err != nil {
		return nil, "", "", err
	}
	id := filepath.Base(c.dir)
	var stderr bytes.Buffer
	run := c.runtime(ctx, "run", "--bundle", bundle, id)
	run.Stderr = &stderr
	out, runErr := run.Output()
	// It is gone already, unless it was interrupted.
	if text, err := c.runtime(context.WithoutCancel(ctx), "delete", "--force", id).CombinedOutput(); err != nil {
		c.remember(fmt.Errorf("delete the container of the check: %w: %s", err, oneLine(string(text))))
	}
	audit = c.takeAudit(id)
	if runErr != nil {
		failure = oneLine(strings.TrimPrefix(stderr.String(), "eggrun: "))
		return nil, "", cmp.Or(failure, oneLine(runErr.Error())), nil
	}
	if err := json.Unmarshal(out, &found); err != nil {
		return nil, "", "", fmt.Errorf("what the container of the check says: %w", err)
	}
	return found, audit, "", nil
}

// runtime is a call of this program for the container. A signal from the terminal
// does not get at it: it is ended by ctx, in order.
func (c *checker) runtime(ctx context.Context, args ...string) *exec.Cmd {
	globals := append(slices.Clone(c.Globals), "--root", filepath.Join(c.dir, "state"))
	cmd := exec.CommandContext(ctx, c.Exe, append(globals, args...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return cmd.Process.Signal(unix.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	cmd.Env = append(os.Environ(), "XDG_STATE_HOME="+c.dir)
	return cmd
}

// takeAudit reads the audit log of the container and removes it.
func (c *checker) takeAudit(id string) string {
	path, err := egress.AuditPath(id, egress.Where{RuntimeRoot: filepath.Join(c.dir, "state")})
	if err != nil {
		c.remember(err)
		return ""
	}
	if c.Rootless {
		path = filepath.Join(c.dir, "eggrun", filepath.Base(path))
	}
	data, err := os.ReadFile(path)
	if err == nil {
		err = os.Remove(path)
	}
	if !errors.Is(err, os.ErrNotExist) {
		c.remember(err)
	}
	return string(data)
}

// writeBundle makes a root file system that has nothing but this program, and
// asks for the capabilities that an engine's --privileged would.
func (c *checker) writeBundle(dir string, t *targets, list string) error {
	text, err := json.Marshal(t)
	if err != nil {
		return err
	}
	config := spec.Example(false)
	config.Root.Readonly = false
	config.Process.Terminal = false
	config.Process.Args = []string{"/eggrun", "check", InsideArgument, string(text)}
	wide := []string{"CAP_NET_ADMIN", "CAP_NET_RAW", "CAP_SYS_ADMIN", "CAP_SYS_PTRACE"}
	config.Process.Capabilities = &specs.LinuxCapabilities{Bounding: wide, Permitted: wide, Effective: wide}
	config.Mounts = slices.DeleteFunc(config.Mounts, func(m specs.Mount) bool { return m.Destination != "/proc" && m.Destination != "/dev" })
	config.Mounts = append(config.Mounts, specs.Mount{Destination: "/eggrun", Type: "bind", Source: c.Exe, Options: []string{"bind", "ro"}})
	config.Annotations = map[string]string{"eggrun.domains": list, "eggrun.mode": "enforce"}
	data, err := json.Marshal(config)
	if err != nil {
		return err
	}
	if err := os.Mkdir(filepath.Join(dir, "rootfs"), 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "config.json"), data, 0o600)
}
