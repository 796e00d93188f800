package container

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"eggrun/internal/linux"
	"eggrun/internal/syncsocket"
	"eggrun/policy"
	"eggrun/sandbox"
	"eggrun/spec"

	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// Restore makes a container from a bundle and from what [Container.Checkpoint]
// wrote, and its processes run when it returns. The first is left to the reaper
// of this process's descendants: see [BecomeSubreaper]. On an error nothing of it is
// left.
func Restore(options *CreateOptions, criu *CriuOptions) (*Container, error) {
	c := &creation{options: options, criu: criu}
	return c.make(c.restore)
}

// decideRestore refuses what can't be restored.
func (c *creation) decideRestore(pol *policy.Policy) error {
	if c.criu == nil {
		return nil
	}
	if c.policy != nil {
		return errWalledCriu
	}
	// What is masked in a restored container is what was when it was dumped.
	if pol != nil && len(pol.Deny)+len(pol.DenyWrite) > 0 {
		return &sandbox.EnforcementError{
			Gaps:     []string{"deny: a restored container has the mounts of its images"},
			Platform: "make it anew instead",
		}
	}
	if shared, err := sharesMounts(c.plan); shared || err != nil {
		return errors.Join(err, errHostMounts)
	}
	if path, _ := c.plan.HasNamespace(specs.CgroupNamespace); path != "" {
		return errors.New("linux.namespaces: a restored container cannot join a cgroup namespace")
	}
	_, err := findCriuProgram()
	return err
}

// restore changes the host, as build does for create.
func (c *creation) restore() error {
	c.state = c.newState()
	if err := c.dir.Save(c.state); err != nil {
		return err
	}
	step()
	if err := c.prepareNotify(); err != nil {
		return err
	}
	job, err := startCriu(true)
	if err != nil {
		return err
	}
	c.child, c.socket = &linux.Child{PID: job.process.Pid}, job.socket
	request, files, err := c.prepareRestore()
	for _, f := range files {
		defer f.Close()
	}
	if err != nil {
		_ = job.end() // it has no request
		return err
	}
	pid, err := job.run(request, files, c.answerCriu)
	if err != nil {
		return err
	}
	step()
	if err := os.Remove(request.RootDir); err != nil {
		return err
	}
	return c.finishRestore(pid)
}

// prepareRestore puts eggrun-criu where the container is to be: criu, and all
// that it restores, begins in its parent's cgroups. The caller closes the files.
func (c *creation) prepareRestore() (*syncsocket.Criu, []*os.File, error) {
	if err := c.joinRdt(); err != nil {
		return nil, nil, err
	}
	step()
	if c.cgroup != nil {
		if err := joinCgroup(c.cgroup, c.child.PID, c.limits); err != nil {
			return nil, nil, err
		}
	}
	step()
	return c.restoreRequest()
}

// answerCriu does what comes up in the middle of a restore.
func (c *creation) answerCriu(message *syncsocket.Message) error {
	if message.Kind == syncsocket.Console {
		return handOverConsole(message, c.options.Console)
	}
	var status syncsocket.CriuStatus
	if err := message.Decode(syncsocket.Hooks, &status); err != nil {
		return err
	}
	// Still held by criu: what is opened now is known also if it ends at once.
	pidfd, err := linux.PidfdOpen(status.PID)
	if err != nil {
		return err
	}
	c.child = &linux.Child{PID: status.PID, Pidfd: pidfd}
	if c.state.Init, err = linux.FindProcess(status.PID); err != nil {
		return err
	}
	if err := c.dir.Save(c.state); err != nil {
		return err
	}
	step()
	return c.hostHooks()
}

// finishRestore makes the container known as running.
func (c *creation) finishRestore(pid int) error {
	if c.child.Pidfd == nil || c.child.PID != pid {
		return fmt.Errorf("criu: restored process %d, and had told of another", pid)
	}
	defer c.child.Pidfd.Close()
	if c.cgroup != nil {
		if err := c.giveCgroup(); err != nil {
			return err
		}
	}
	if err := c.noteTimeNamespace(); err != nil {
		return err
	}
	return c.finish()
}

// noteTimeNamespace adds the time namespace into which criu puts what it
// restores, for clocks that count from boot to go on where they stopped: what is
// executed in the container joins it. A kernel before 5.6 has none.
func (c *creation) noteTimeNamespace() error {
	if _, ok := c.plan.HasNamespace(specs.TimeNamespace); ok {
		return nil
	}
	f, err := os.Open(fmt.Sprintf("/proc/%d/ns/time", c.child.PID))
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		return nil // or it has ended
	}
	if err != nil {
		return err
	}
	defer f.Close()
	shared, err := isShared(f, "time")
	if err == nil && !shared {
		c.plan.Namespaces = append(c.plan.Namespaces, spec.Namespace{Type: specs.TimeNamespace})
	}
	return err
}

// restoreRequest returns also the files that go with the request, which the
// caller closes.
func (c *creation) restoreRequest() (*syncsocket.Criu, []*os.File, error) {
	request := &syncsocket.Criu{
		Task:        syncsocket.CriuRestore,
		Options:     c.criu.CriuOptions,
		Rootfs:      c.plan.Rootfs,
		MountPoints: mountPoints(c.plan.Mounts),
		ConfigFile:  criuConfig(c.plan.Annotations),
	}
	err := setDirs(request, c.criu)
	if err != nil {
		return nil, nil, err
	}
	if request.CgroupRoots, err = cgroups.ParseCgroupFile(fmt.Sprintf("/proc/%d/cgroup", c.child.PID)); err != nil {
		return nil, nil, fmt.Errorf("cgroup: %w", err)
	}
	if c.cgroup == nil {
		request.CgroupRoots = nil
	}
	if request.Mounts, err = restoredMounts(c.child.PID, c.plan, cgroups.IsCgroup2UnifiedMode()); err != nil {
		return nil, nil, err
	}
	if request.InheritFDs, err = loadDescriptors(c.criu.ImagePath); err != nil {
		return nil, nil, err
	}
	files, err := c.restoreNamespaces(request)
	if err != nil {
		return nil, files, err
	}
	request.RootDir, err = c.makeRootDir()
	return request, files, err
}

// makeRootDir makes the directory on which the root file system is mounted, in
// another mount namespace.
func (c *creation) makeRootDir() (string, error) {
	dir := filepath.Join(c.dir.Path(), "criu-root")
	if err := os.Mkdir(dir, 0o755); err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(dir)
}

// restoreNamespaces gives criu the namespaces to restore into.
func (c *creation) restoreNamespaces(request *syncsocket.Criu) (files []*os.File, err error) {
	request.JoinNS = map[string]string{}
	for _, ns := range c.plan.Namespaces {
		if ns.Path == "" {
			continue
		}
		key, ok := externalNamespaces[ns.Type]
		if !ok {
			request.JoinNS[namespaceName(ns.Type)] = ns.Path
			continue
		}
		f, err := openNamespace(ns, cloneFlags[ns.Type])
		if err != nil {
			return files, err
		}
		files = append(files, f)
		request.InheritFDs = append(request.InheritFDs, syncsocket.CriuInherit{Key: key})
	}
	return files, nil
}

// loadDescriptors gives our standard streams to those of a container that were
// pipes of who called create.
func loadDescriptors(images string) ([]syncsocket.CriuInherit, error) {
	data, err := os.ReadFile(filepath.Join(images, descriptorsFile))
	if err != nil {
		return nil, fmt.Errorf("option --image-path: %w", err)
	}
	var streams []string
	if err := json.Unmarshal(data, &streams); err != nil {
		return nil, fmt.Errorf("parse %q: %w", descriptorsFile, err)
	}
	var inherit []syncsocket.CriuInherit
	for i, link := range streams[:min(3, len(streams))] {
		if strings.HasPrefix(link, "pipe:[") && !slices.Contains(streams[:i], link) {
			inherit = append(inherit, syncsocket.CriuInherit{Key: link, IsStream: true, Stream: i})
		}
	}
	return inherit, nil
}

// streams returns what the standard streams of this process are, which a
// container without a terminal gets.
func streams() ([]string, error) {
	links := make([]string, 3)
	var err error
	for fd := range links {
		if links[fd], err = os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd)); err != nil {
			return nil, err
		}
	}
	return links, nil
}
