package container

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/moby/sys/mountinfo"
	"github.com/opencontainers/runtime-spec/specs-go"
)

func (c *creation) decideRdt() error {
	if c.plan.IntelRdt == nil {
		return nil
	}
	root, err := resctrlRoot()
	if err != nil {
		return fmt.Errorf("linux.intelRdt: %w or drop the field", err)
	}
	c.rdt, err = newRdtClass(root, c.options.ID, c.plan.IntelRdt)
	return err
}

func (c *creation) joinRdt() error {
	if c.rdt == nil {
		return nil
	}
	err := c.rdt.join(c.child.PID)
	if errors.Is(err, os.ErrExist) {
		c.state.Resctrl = nil // it is somebody else's
	}
	return err
}

// resctrlRoot returns where the resctrl file system is mounted. The kernel has
// it on processors that can partition their cache, see the kernel's
// documentation, "User Interface for Resource Control feature".
func resctrlRoot() (string, error) {
	mounts, err := mountinfo.GetMounts(mountinfo.FSTypeFilter("resctrl"))
	if err != nil {
		return "", err
	}
	if len(mounts) == 0 {
		return "", errors.New("no resctrl file system is mounted; mount it on /sys/fs/resctrl")
	}
	return mounts[0].Mountpoint, nil
}

// rdtClass is the class of service of a container: a directory of the resctrl
// file system.
type rdtClass struct {
	root, dir string
	config    *specs.LinuxIntelRdt
	// isNew is set where the directory is still to be made.
	isNew bool
	// monitor is the container's monitoring group, "" for none.
	monitor string
}

// newRdtClass decides about the class of the container with that id and changes
// nothing.
func newRdtClass(root, id string, config *specs.LinuxIntelRdt) (*rdtClass, error) {
	c := rdtClassOf(root, id, config)
	_, err := os.Stat(c.dir)
	c.isNew = errors.Is(err, os.ErrNotExist)
	if err != nil && !c.isNew {
		return nil, fmt.Errorf("linux.intelRdt: %w", err)
	}
	if config.ClosID == "" {
		return c, nil
	}
	if c.isNew && len(c.lines()) == 0 {
		return nil, fmt.Errorf("linux.intelRdt.closID %q: no such class; make it or give a schema", config.ClosID)
	}
	if c.isNew {
		return c, nil
	}
	return c, c.compare()
}

// rdtClassOf returns the class of the container with that id, made or not.
func rdtClassOf(root, id string, config *specs.LinuxIntelRdt) *rdtClass {
	c := &rdtClass{root: root, dir: filepath.Join(root, cmp.Or(config.ClosID, id)), config: config}
	if config.EnableMonitoring {
		c.monitor = filepath.Join(c.dir, "mon_groups", id)
	}
	return c
}

// lines are what the file schemata gets, in the order of the specification.
func (c *rdtClass) lines() []string {
	var lines []string
	for _, line := range append([]string{c.config.L3CacheSchema, c.config.MemBwSchema}, c.config.Schemata...) {
		if line != "" {
			lines = append(lines, line)
		}
	}
	return lines
}

// compare refuses a class that others made with another share of cache or
// bandwidth: they rely on it.
func (c *rdtClass) compare() error {
	data, err := os.ReadFile(filepath.Join(c.dir, "schemata"))
	if err != nil {
		return fmt.Errorf("linux.intelRdt: %w", err)
	}
	has := map[string]string{}
	for line := range strings.Lines(string(data)) {
		for domain, value := range parseSchema(line) {
			has[domain] = value
		}
	}
	for _, line := range []string{c.config.L3CacheSchema, c.config.MemBwSchema} {
		for domain, value := range parseSchema(line) {
			if has[domain] != value {
				return fmt.Errorf("linux.intelRdt.closID %q: the class exists with another schema than %q", c.config.ClosID, line)
			}
		}
	}
	return nil
}

// parseSchema takes a line like "L3:0=ff;1=0f" apart, to {"L3:0": "ff", "L3:1":
// "f"}.
func parseSchema(line string) map[string]string {
	resource, domains, _ := strings.Cut(strings.TrimSpace(line), ":")
	values := map[string]string{}
	for domain := range strings.SplitSeq(domains, ";") {
		if id, value, ok := strings.Cut(domain, "="); ok {
			values[resource+":"+strings.TrimSpace(id)] = strings.ToLower(strings.TrimLeft(strings.TrimSpace(value), "0"))
		}
	}
	return values
}

// leaves are the directories to be removed with the container, in that order. A
// class that was there, or that config.json names, stays.
func (c *rdtClass) leaves() []string {
	var dirs []string
	if c.monitor != "" {
		dirs = append(dirs, c.monitor)
	}
	if c.isNew && c.config.ClosID == "" {
		dirs = append(dirs, c.dir)
	}
	return dirs
}

// join puts a process that is still to execute its program into the class; only
// its first thread, the one that will.
func (c *rdtClass) join(pid int) error {
	return c.explain(c.change(pid))
}

// update gives the class another share.
func (c *rdtClass) update(l3CacheSchema, memBwSchema string) error {
	var lines []string
	for _, line := range []string{l3CacheSchema, memBwSchema} {
		if line != "" {
			lines = append(lines, line)
		}
	}
	return c.explain(c.share(lines))
}

func (c *rdtClass) explain(err error) error {
	if err == nil {
		return nil
	}
	// The kernel's own words, such as "Mask f has non-consecutive 1-bits".
	if status, readErr := os.ReadFile(filepath.Join(c.root, "info", "last_cmd_status")); readErr == nil {
		err = fmt.Errorf("%w (%s)", err, strings.TrimSpace(string(status)))
	}
	return fmt.Errorf("linux.intelRdt: %w", err)
}

// share writes lines of the file schemata. The kernel takes all or none.
func (c *rdtClass) share(lines []string) error {
	if len(lines) == 0 {
		return nil
	}
	return os.WriteFile(filepath.Join(c.dir, "schemata"), []byte(strings.Join(lines, "\n")+"\n"), 0o644)
}

func (c *rdtClass) change(pid int) error {
	if c.isNew {
		if err := os.Mkdir(c.dir, 0o755); err != nil {
			return err
		}
	}
	if err := c.share(c.lines()); err != nil {
		return err
	}
	task := []byte(strconv.Itoa(pid))
	if err := os.WriteFile(filepath.Join(c.dir, "tasks"), task, 0o644); err != nil {
		return err
	}
	if c.monitor == "" {
		return nil
	}
	if err := os.Mkdir(c.monitor, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(c.monitor, "tasks"), task, 0o644)
}

// removeRdt removes what a container left in the resctrl file system, and
// returns the first error.
func removeRdt(dirs []string) error {
	var first error
	for _, dir := range dirs {
		if err := os.Remove(dir); err != nil && !errors.Is(err, os.ErrNotExist) && first == nil {
			first = fmt.Errorf("resctrl: %w", err)
		}
	}
	return first
}
