package container

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"eggrun/internal/syncsocket"
	"eggrun/sandbox"

	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// CriuOptions are what the command line of checkpoint and restore says.
type CriuOptions struct {
	syncsocket.CriuOptions
	// ImagePath is the directory of the images.
	ImagePath string
	// WorkPath is where criu writes its log, "" for ImagePath.
	WorkPath string
	// PreDump is set to write memory only, while the container goes on.
	PreDump bool
	// Status gets a zero byte when pages can be asked for; nil for nobody.
	Status *os.File
}

// descriptorsFile is in the images, with runc's name and content: what the
// standard streams were, by their links in /proc.
const descriptorsFile = "descriptors.json"

// Checkpoint writes the processes of a running or paused container to files,
// from which [Restore] makes them again. They are gone then, unless the options
// say otherwise; the container is left to be deleted. It must be locked.
func (c *Container) Checkpoint(options *CriuOptions) error {
	if c.state.Walled {
		return errWalledCriu
	}
	if status := c.Status(); status != specs.StateRunning && status != Paused {
		return c.wrongState("running")
	}
	if c.state.HostMount != 0 {
		return errHostMounts
	}
	c.awaitProgram()
	var base execBase
	if err := c.dir.LoadExec(&base); err != nil {
		return err
	}
	request, err := c.dumpRequest(&base, options)
	if err != nil {
		return err
	}
	if err := setDirs(request, options); err != nil {
		return err
	}
	var files []*os.File
	if options.Status != nil {
		files = append(files, options.Status)
		request.HasStatus = true
	}
	if !options.PreDump {
		if err := saveDescriptors(options.ImagePath, base.Streams); err != nil {
			return err
		}
	}
	step()
	job, err := startCriu(false)
	if err != nil {
		return err
	}
	_, err = job.run(request, files, nil)
	step()
	return err
}

// errWalledCriu: restored processes come with sockets, routes and filters of
// their own, and none of them would have been built by us.
var errWalledCriu = &sandbox.EnforcementError{
	Gaps:     []string{"domains: a restored container would not be behind its wall"},
	Platform: "stop it and make it anew instead",
}

var errHostMounts = errors.New("linux.namespaces: a container without a mount namespace cannot be checkpointed")

// awaitProgram waits until init has executed the program, which start does not:
// until then it has our own program mapped, which is on no mount of the
// container's. The fifo closes with execve. Where it stays open, criu says so.
func (c *Container) awaitProgram() {
	fds := fmt.Sprintf("/proc/%d/fd", c.state.Init.PID)
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		entries, err := os.ReadDir(fds)
		if err != nil || !slices.ContainsFunc(entries, func(entry os.DirEntry) bool {
			link, _ := os.Readlink(filepath.Join(fds, entry.Name()))
			return strings.HasSuffix(link, "/"+c.state.ID+"/exec.fifo (deleted)")
		}) {
			return
		}
	}
}

func saveDescriptors(dir string, streams []string) error {
	data, err := json.Marshal(streams)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, descriptorsFile), data, 0o600)
}

func (c *Container) dumpRequest(base *execBase, options *CriuOptions) (*syncsocket.Criu, error) {
	request := &syncsocket.Criu{
		Task:       syncsocket.CriuDump,
		Options:    options.CriuOptions,
		PID:        c.state.Init.PID,
		Rootfs:     base.Plan.Rootfs,
		ConfigFile: criuConfig(c.state.Annotations),
	}
	m, err := openCgroup(c.state)
	if err != nil {
		return nil, err
	}
	if m != nil {
		request.FreezeCgroup = m.Path("freezer")
	}
	for _, ns := range base.Plan.Namespaces {
		key, ok := externalNamespaces[ns.Type]
		if !ok || ns.Path == "" {
			continue
		}
		var stat unix.Stat_t
		path := fmt.Sprintf("/proc/%d/ns/%s", c.state.Init.PID, namespaceName(ns.Type))
		if err := unix.Stat(path, &stat); err != nil {
			return nil, &os.PathError{Op: "stat", Path: path, Err: err}
		}
		request.External = append(request.External, fmt.Sprintf("%s[%d]:%s", namespaceName(ns.Type), stat.Ino, key))
	}
	if options.PreDump {
		request.Task = syncsocket.CriuPreDump
		return request, nil
	}
	request.Mounts, err = dumpedMounts(c.state.Init.PID, base.Plan, cgroups.IsCgroup2UnifiedMode())
	return request, err
}

// externalNamespaces are those that are left as they are where config.json has a
// path for them, with the names under which runc's images have them.
var externalNamespaces = map[specs.LinuxNamespaceType]string{
	specs.NetworkNamespace: "extRootNetNS",
	specs.PIDNamespace:     "extRootPidNS",
}
