package spec

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

func translateMounts(src *source, plan *Plan) error {
	plan.Mounts = make([]Mount, 0, len(src.Mounts))
	plan.PopulateDev = true
	if err := noNUL("linux.mountLabel", src.linux.MountLabel); err != nil {
		return err
	}
	plan.MountLabel = src.linux.MountLabel
	for i := range src.Mounts {
		mount, err := mountOf(at("mounts", i), &src.Mounts[i], src.bundle)
		if err != nil {
			return err
		}
		// As under runc, which takes paths of both sides for this.
		if below, ok := strings.CutPrefix(mount.Target, plan.Rootfs+"/"); ok {
			mount.Target = "/" + below
		}
		if err := checkIDMap(at("mounts", i), &mount, plan); err != nil {
			return err
		}
		if mount.IsBind() && mount.Target == "/dev" {
			// The nodes would be made on the host.
			plan.PopulateDev = false
		}
		plan.Mounts = append(plan.Mounts, mount)
	}
	return nil
}

// TranslateMounts translates further mounts for the container of a plan, by the
// rules of [Translate]; a relative source is one of the bundle. Mounts of cgroups
// are for create alone. The plan isn't changed.
func TranslateMounts(from []specs.Mount, bundle string, plan *Plan) ([]Mount, error) {
	var mounts []Mount
	for i := range from {
		field := at("mounts", i)
		mount, err := mountOf(field, &from[i], bundle)
		if err == nil {
			err = checkIDMap(field, &mount, plan)
		}
		if err == nil && strings.HasPrefix(mount.Type, "cgroup") {
			err = invalidValue(field+".type", mount.Type, "can't be added to a container that exists")
		}
		if err != nil {
			var fieldErr *FieldError
			if errors.As(err, &fieldErr) {
				fieldErr.File = "mounts"
			}
			return nil, err
		}
		mounts = append(mounts, mount)
	}
	return mounts, nil
}

// bindAttrs are the flags that a bind mount has from its options alone, if these
// name any flag: so do mount(2) with MS_REMOUNT and, through it, runc and crun.
// Engines expect it: programs on a volume from a host's noexec mount run. In a
// user namespace, what the host has set stays.
const bindAttrs = unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV |
	unix.MOUNT_ATTR_NOEXEC | unix.MOUNT_ATTR_NOSYMFOLLOW

// mountOf translates one mount. Flags that no option names stay out of Set and
// Clear where none is named: a new mount then has the kernel's defaults, a bind
// mount those of its source.
func mountOf(field string, from *specs.Mount, bundle string) (Mount, error) {
	var mount Mount
	target, err := mountTarget(field+".destination", from.Destination)
	if err != nil {
		return mount, err
	}
	options, err := parseOptions(field+".options", from.Options)
	if err != nil {
		return mount, err
	}
	if mount.IDMap, err = idMapOf(field, from, options.idmap); err != nil {
		return mount, err
	}
	mount.Target = target
	mount.Set, mount.Clear = options.attrs.set, options.attrs.clear
	mount.RecSet, mount.RecClear = options.recAttrs.set, options.recAttrs.clear
	mount.Propagation = options.propagation
	mount.ReadOnly = isReadOnly(options)
	// runc asks only for the option, crun also for the type: no file system is
	// called bind.
	if options.bind || from.Type == "bind" {
		mount.Recursive = options.recursive
		if mount.Set|mount.Clear != 0 && !options.remount {
			mount.Clear |= bindAttrs &^ mount.Set
		}
		if options.copyUp {
			return mount, invalidValue(field+".options", "tmpcopyup", "only for a tmpfs")
		}
		mount.Source, err = bindSource(field, from.Source, bundle, options)
		return mount, err
	}
	mount.Source = from.Source
	mount.Type = from.Type
	mount.Data = superblockData(from.Type, options)
	mount.CopyUp = options.copyUp
	return mount, checkFilesystem(field, from, options)
}

func mountTarget(field, destination string) (string, error) {
	if destination == "" {
		return "", invalid(field, "must not be empty")
	}
	if err := noNUL(field, destination); err != nil {
		return "", err
	}
	// A relative one is meant from the root, says the specification since 1.2.
	target := filepath.Clean("/" + destination)
	if target == "/" {
		return "", invalidValue(field, destination, "must not be the root")
	}
	return target, nil
}

// isReadOnly tells how the mount ends up: the recursive flags come last.
func isReadOnly(options *optionSet) bool {
	set := options.attrs.set&^options.recAttrs.clear | options.recAttrs.set
	return set&unix.MOUNT_ATTR_RDONLY != 0
}

// bindSource returns the absolute source of a bind mount. A file system's
// options, such as mode=755, are ignored, as by the kernel: the superblock is
// the source's. But a word that no mount knows is refused, for it may be the
// wrong name of an option that restricts.
func bindSource(field, source, bundle string, options *optionSet) (string, error) {
	for _, option := range options.data {
		if !strings.Contains(option, "=") {
			return "", invalidValue(field+".options", option, "not an option of a bind mount")
		}
	}
	if source == "" {
		return "", invalid(field+".source", "must not be empty for a bind mount")
	}
	if err := noNUL(field+".source", source); err != nil {
		return "", err
	}
	if filepath.IsAbs(source) {
		// Not cleaned: behind a symlink, ".." is another directory.
		return source, nil
	}
	return filepath.Join(bundle, source), nil
}

func checkFilesystem(field string, from *specs.Mount, options *optionSet) error {
	if options.remount {
		return unsupportedValue(field+".options", "remount", notYet+" but for a bind mount")
	}
	if options.copyUp && from.Type != "tmpfs" {
		return invalidValue(field+".options", "tmpcopyup", "only for a tmpfs")
	}
	switch from.Type {
	case "":
		return invalid(field+".type", "must be set, or options must have bind or rbind")
	case "none":
		return invalidValue(field+".type", from.Type, "options must have bind or rbind")
	}
	if err := noNUL(field+".type", from.Type); err != nil {
		return err
	}
	return noNUL(field+".source", from.Source)
}

// kernelFilesystems have a superblock that the kernel shares among mounts, or
// in which mount points are still to be made. There ro is a flag of the mount
// alone.
var kernelFilesystems = [...]string{
	"bpf", "cgroup", "cgroup2", "debugfs", "devpts", "hugetlbfs", "mqueue", "proc", "ramfs",
	"securityfs", "sysfs", "tmpfs", "tracefs",
}

// superblockData returns what fsconfig(2) gets. With ro the superblock is
// read-only too, as with mount(2): a write-protected disk can't be mounted
// otherwise.
func superblockData(kind string, options *optionSet) []string {
	var data []string
	if options.attrs.set&unix.MOUNT_ATTR_RDONLY != 0 && !slices.Contains(kernelFilesystems[:], kind) {
		data = append(data, "ro")
	}
	data = append(data, options.params...)
	for _, option := range options.data {
		data = append(data, unquoteLabel(option))
	}
	return data
}

// unquoteLabel takes the quotes from an option that holds an SELinux label.
// They hide the label's commas from mount(2), while fsconfig(2) would take them
// for a part of it.
func unquoteLabel(option string) string {
	key, value, _ := strings.Cut(option, "=")
	switch key {
	case "context", "fscontext", "defcontext", "rootcontext":
		return key + "=" + strings.Trim(value, `"`)
	}
	return option
}
