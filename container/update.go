package container

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"eggrun/internal/state"

	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/runtime-spec/specs-go"
)

// UpdateOptions are the limits that a container gets anew.
type UpdateOptions struct {
	// Resources are the new limits. What is nil or zero stays as it is, as do
	// the device rules.
	Resources *specs.LinuxResources
	// L3CacheSchema and MemBwSchema replace those of linux.intelRdt; "" for
	// none.
	L3CacheSchema, MemBwSchema string
}

// Update changes the limits of a container that has not ended. Where one of them
// cannot be set, those that could are set back to what config.json or an earlier
// update said, or to no limit. The container must be locked.
func (c *Container) Update(options *UpdateOptions) error {
	switch c.Status() {
	case specs.StateStopped:
		return state.ErrNotRunning
	case specs.StateCreating:
		return c.wrongState("created", "running")
	}
	change, err := changeLimits(c.state.Resources, options.Resources)
	if err != nil {
		return err
	}
	m, err := openCgroup(c.state)
	if err != nil {
		return fmt.Errorf("cgroup: %w", err)
	}
	if m == nil || !m.Exists() {
		return fmt.Errorf("limits: %w", errNoCgroup)
	}
	class, err := c.updatedClass(options)
	if err != nil {
		return err
	}
	if c.state.Cgroup.Manager == ManagerSystemd {
		change.keepFromSystemd(c.state.Resources)
	}
	if err := setLimits(m, change.apply); err != nil {
		return takeBack(m, change, err)
	}
	if class != nil {
		if err := class.update(options.L3CacheSchema, options.MemBwSchema); err != nil {
			return takeBack(m, change, err)
		}
		c.state.IntelRdt = class.config
	}
	c.state.Resources = change.after
	return c.dir.Save(c.state)
}

// updatedClass returns the container's class of service with its configuration
// as it will be, nil where that does not change.
func (c *Container) updatedClass(options *UpdateOptions) (*rdtClass, error) {
	if options.L3CacheSchema == "" && options.MemBwSchema == "" {
		return nil, nil
	}
	root, err := resctrlRoot()
	if err != nil {
		return nil, fmt.Errorf("options --l3-cache-schema and --mem-bw-schema: %w", err)
	}
	if c.state.IntelRdt == nil {
		return nil, errors.New("options --l3-cache-schema and --mem-bw-schema: the container was created without linux.intelRdt")
	}
	config := *c.state.IntelRdt
	if options.L3CacheSchema != "" {
		config.L3CacheSchema = options.L3CacheSchema
	}
	if options.MemBwSchema != "" {
		config.MemBwSchema = options.MemBwSchema
	}
	return rdtClassOf(root, c.state.ID, &config), nil
}

func setLimits(m cgroups.Manager, limits *specs.LinuxResources) error {
	resources, err := cgroupResources(limits)
	if err != nil {
		return err
	}
	// Nobody asked for device rules, and others may have added to them.
	resources.Devices, resources.SkipDevices = nil, true
	err = m.Set(resources)
	var missing *os.PathError
	switch {
	case errors.Is(err, os.ErrNotExist) && errors.As(err, &missing):
		return fmt.Errorf("cgroup limits: no file %q in the cgroup; its controller is not enabled there", filepath.Base(missing.Path))
	case err != nil:
		return fmt.Errorf("cgroup limits: %w", err)
	}
	return nil
}

// takeBack undoes a change that ended with err.
func takeBack(m cgroups.Manager, change *limitChange, err error) error {
	undoErr := setLimits(m, change.undo)
	if undoErr != nil && undoErr.Error() != err.Error() {
		return fmt.Errorf("%w; and then, setting back: %w", err, undoErr)
	}
	return err
}
