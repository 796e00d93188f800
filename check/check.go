// Package check finds out whether this machine lets eggrun do what it is for:
// the kernel, cgroups, the ids of a user, the engines' configuration, and the
// wall itself, in a container that is thrown away.
//
// Nothing is changed, and what is made for a try is removed again. What is read
// is judged in pure functions; what only the kernel knows is tried, as much as
// can be with the calls that the rest of eggrun makes.
package check

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"time"

	"eggrun/internal/linux"

	"golang.org/x/sys/unix"
)

// Status is what has come out of one check.
type Status string

// The values of [Status].
const (
	OK Status = "ok"
	// Missing is what some containers or engines need and others do without.
	Missing Status = "missing"
	// Bad is what keeps eggrun from working here, or from keeping its promise.
	Bad Status = "bad"
)

// Result is one line of the report.
type Result struct {
	Group  string `json:"group"`
	Name   string `json:"name"`
	Status Status `json:"status"`
	// Cause is what was found, on one line.
	Cause string `json:"cause,omitempty"`
	// Fix is the command or the line of a file that mends it; "" for [OK].
	Fix string `json:"fix,omitempty"`
}

// Options say what to check.
type Options struct {
	// Exe is the absolute path of this program.
	Exe string
	// Globals are the global flags that containers are to be made with.
	Globals []string
	// RuntimeRoot is the directory of the containers' state; RootErr says why
	// there is none.
	RuntimeRoot string
	RootErr     error
	// Systemd says that systemd is to manage the cgroups.
	Systemd bool
	// Rootless is set for all but the host's root.
	Rootless bool
	// Quick leaves out what starts another process of this program: what is
	// tried in namespaces, and the wall.
	Quick bool
}

// host is what the checks read; tests have others.
type host struct {
	files    fs.FS // of "/"
	getenv   func(string) string
	lookPath func(string) (string, error)
	// version returns what PROGRAM --version prints.
	version func(program string) string
	// judge says what a configured runtime is.
	judge func(path string) program
	// resolve says why a container with these annotations would be refused.
	resolve func(annotations map[string]string) error
	uid     int
}

// checker is one run of all checks.
type checker struct {
	Options
	host
	// privileged is set for a caller who needs no user namespace of his own.
	privileged bool
	// tables says that the kernel has nftables.
	tables bool
	// dir is for everything that the checks make; the container is called as it
	// is.
	dir     string
	results []Result
	// left are errors of removing what was made.
	left []error
}

// Run makes all checks, in the order in which the results depend on each other,
// and removes what it made, also when ctx is done before the end: then the error
// says that it was interrupted.
func Run(ctx context.Context, options *Options) ([]Result, error) {
	privileged, err := linux.HasCapability(unix.CAP_SYS_ADMIN)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "eggrun-check-")
	if err != nil {
		return nil, err
	}
	c := &checker{Options: *options, privileged: privileged, dir: dir, host: host{
		files: os.DirFS("/"), getenv: os.Getenv, lookPath: exec.LookPath, uid: os.Geteuid(),
		version: func(program string) string { return programVersion(ctx, program, dir) },
		judge:   func(path string) program { return judgeProgram(path, options.Exe) },
		resolve: resolveHere,
	}}
	err = c.all(ctx)
	if ctx.Err() != nil {
		err = errors.New("interrupted")
	}
	c.remember(os.RemoveAll(dir))
	for _, left := range c.left {
		if err == nil {
			err = left
		} else {
			err = fmt.Errorf("%w; %w", err, left)
		}
	}
	return c.results, err
}

func (c *checker) all(ctx context.Context) error {
	for _, group := range []func(context.Context) error{
		c.kernel, c.cgroups, c.ids, c.installation, c.engines, c.wall,
	} {
		if err := group(ctx); err != nil || ctx.Err() != nil {
			return err
		}
	}
	return nil
}

// remember keeps an error of removing what was made.
func (c *checker) remember(err error) {
	if err != nil {
		c.left = append(c.left, err)
	}
}

func (c *checker) add(results ...Result) { c.results = append(c.results, results...) }

// read returns a file of the host without white space around it, "" for one that
// can't be read.
func (h *host) read(path string) string {
	data, err := fs.ReadFile(h.files, strings.TrimPrefix(path, "/"))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}

// exists tells whether there is a file of that name.
func (h *host) exists(path string) bool {
	_, err := fs.Stat(h.files, strings.TrimPrefix(path, "/"))
	return err == nil
}

// programVersion asks a program, which may take its time or want a server. The
// directories that podman makes at each start are made in dir.
func programVersion(ctx context.Context, program, dir string) string {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, "--version")
	cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	for _, name := range []string{"HOME", "TMPDIR", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME"} {
		cmd.Env = append(cmd.Env, name+"="+dir)
	}
	out, err := cmd.Output()
	if err != nil {
		return ""
	}
	return string(out)
}

// oneLine makes an error, or what a program printed, fit for a table.
func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// parseVersion returns the first two numbers of the first word that begins with
// a digit, "podman version 4.3.1" or "v29.0"; zeros for none.
func parseVersion(text string) (major, minor int) {
	for word := range strings.FieldsSeq(text) {
		if n, _ := fmt.Sscanf(strings.TrimPrefix(word, "v"), "%d.%d", &major, &minor); n == 2 {
			return major, minor
		}
	}
	return 0, 0
}

// older tells whether a version that is known is below the wanted one.
func older(text string, major, minor int) bool {
	a, b := parseVersion(text)
	return a != 0 && (a < major || a == major && b < minor)
}
