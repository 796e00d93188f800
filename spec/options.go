package spec

import (
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// optionKind tells what a mount option is about.
type optionKind int

const (
	// setAttr and clearAttr change a flag of the mount itself.
	setAttr optionKind = iota
	clearAttr
	// setATime and clearATime choose one of the three access time modes.
	setATime
	clearATime
	// setParam and clearParam change a flag of the superblock, which a bind
	// mount shares with its source and leaves as it is, as mount(2) does.
	setParam
	clearParam
	bindOption
	// ignoredOption names a default, or what only the kernel log shows.
	ignoredOption
	// remountOption keeps a bind mount's other flags, as is always done here.
	remountOption
	copyUpOption
	idmapOption
)

// mountOption is an option of the specification, see mount(8).
type mountOption struct {
	name string
	kind optionKind
	// bits are MOUNT_ATTR_* for the first four kinds, MS_REC for rbind and
	// ridmap.
	bits uint64
	// param is the key of fsconfig(2).
	param string
}

// mountOptions has all options but those of propagation. Each of the first four
// kinds has also a form with r before it, which works on the whole tree.
var mountOptions = [...]mountOption{
	{name: "ro", kind: setAttr, bits: unix.MOUNT_ATTR_RDONLY},
	{name: "rw", kind: clearAttr, bits: unix.MOUNT_ATTR_RDONLY},
	{name: "nosuid", kind: setAttr, bits: unix.MOUNT_ATTR_NOSUID},
	{name: "suid", kind: clearAttr, bits: unix.MOUNT_ATTR_NOSUID},
	{name: "nodev", kind: setAttr, bits: unix.MOUNT_ATTR_NODEV},
	{name: "dev", kind: clearAttr, bits: unix.MOUNT_ATTR_NODEV},
	{name: "noexec", kind: setAttr, bits: unix.MOUNT_ATTR_NOEXEC},
	{name: "exec", kind: clearAttr, bits: unix.MOUNT_ATTR_NOEXEC},
	{name: "nodiratime", kind: setAttr, bits: unix.MOUNT_ATTR_NODIRATIME},
	{name: "diratime", kind: clearAttr, bits: unix.MOUNT_ATTR_NODIRATIME},
	{name: "nosymfollow", kind: setAttr, bits: unix.MOUNT_ATTR_NOSYMFOLLOW},
	{name: "symfollow", kind: clearAttr, bits: unix.MOUNT_ATTR_NOSYMFOLLOW},

	{name: "relatime", kind: setATime, bits: unix.MOUNT_ATTR_RELATIME},
	{name: "norelatime", kind: clearATime, bits: unix.MOUNT_ATTR_RELATIME},
	{name: "noatime", kind: setATime, bits: unix.MOUNT_ATTR_NOATIME},
	{name: "atime", kind: clearATime, bits: unix.MOUNT_ATTR_NOATIME},
	{name: "strictatime", kind: setATime, bits: unix.MOUNT_ATTR_STRICTATIME},
	{name: "nostrictatime", kind: clearATime, bits: unix.MOUNT_ATTR_STRICTATIME},

	{name: "sync", kind: setParam, param: "sync"},
	{name: "async", kind: clearParam, param: "sync"},
	{name: "dirsync", kind: setParam, param: "dirsync"},
	{name: "lazytime", kind: setParam, param: "lazytime"},
	{name: "nolazytime", kind: clearParam, param: "lazytime"},
	{name: "mand", kind: setParam, param: "mand"},
	{name: "nomand", kind: clearParam, param: "mand"},
	{name: "iversion", kind: setParam, param: "iversion"},
	{name: "noiversion", kind: clearParam, param: "iversion"},

	{name: "bind", kind: bindOption},
	{name: "rbind", kind: bindOption, bits: unix.MS_REC},
	{name: "defaults", kind: ignoredOption},
	{name: "silent", kind: ignoredOption},
	{name: "loud", kind: ignoredOption},
	{name: "remount", kind: remountOption},
	{name: "tmpcopyup", kind: copyUpOption},
	{name: "idmap", kind: idmapOption},
	{name: "ridmap", kind: idmapOption, bits: unix.MS_REC},
}

var propagationOptions = [...]string{
	"private", "rprivate", "slave", "rslave", "shared", "rshared", "unbindable", "runbindable",
}

// MountOptions returns the options that mounts may have, sorted, without those
// that belong to one file system.
func MountOptions() []string {
	names := slices.Clone(propagationOptions[:])
	for _, option := range mountOptions {
		if option.kind == remountOption {
			continue
		}
		names = append(names, option.name)
		if option.kind <= clearATime {
			names = append(names, "r"+option.name)
		}
	}
	slices.Sort(names)
	return names
}

// findOption looks an option up, also in its form with r.
func findOption(name string) (option mountOption, recursive, ok bool) {
	for _, option := range mountOptions {
		if option.name == name {
			return option, false, true
		}
	}
	short, hasR := strings.CutPrefix(name, "r")
	for _, option := range mountOptions {
		if hasR && option.name == short && option.kind <= clearATime {
			return option, true, true
		}
	}
	return mountOption{}, false, false
}

// attrs are what mount_setattr(2) takes: it clears first, then sets.
type attrs struct{ set, clear uint64 }

func (a *attrs) apply(kind optionKind, bits uint64) {
	switch kind {
	case setAttr:
		a.set |= bits
		a.clear &^= bits
	case clearAttr:
		a.set &^= bits
		a.clear |= bits
	case setATime:
		// The modes are values of one field: without the whole field in
		// attr_clr the kernel refuses to change it.
		a.set = a.set&^unix.MOUNT_ATTR__ATIME | bits
		a.clear |= unix.MOUNT_ATTR__ATIME
	case clearATime:
		// Not to have a mode is to have relatime, the kernel's default.
		if a.set&unix.MOUNT_ATTR__ATIME == bits {
			a.set &^= unix.MOUNT_ATTR__ATIME
		}
		a.clear |= unix.MOUNT_ATTR__ATIME
	}
}

// optionSet is what the options of one mount add up to; a later one wins.
type optionSet struct {
	bind, recursive bool
	// remount is set where the mount is said to exist already.
	remount bool
	copyUp  bool
	// idmap is nil where no option asks for it.
	idmap       *IDMap
	attrs       attrs
	recAttrs    attrs
	propagation uint64
	// params are superblock flags, data is the file system's own.
	params, data []string
}

func parseOptions(field string, options []string) (*optionSet, error) {
	set := &optionSet{}
	for i, name := range options {
		if err := noNUL(at(field, i), name); err != nil {
			return nil, err
		}
		if bits, ok := propagationOf(name); ok {
			if err := set.addPropagation(at(field, i), name, bits); err != nil {
				return nil, err
			}
			continue
		}
		option, recursive, ok := findOption(name)
		if !ok {
			set.data = append(set.data, splitData(name)...)
			continue
		}
		set.add(option, recursive)
	}
	return set, nil
}

func (s *optionSet) add(option mountOption, recursive bool) {
	switch option.kind {
	case setAttr, clearAttr, setATime, clearATime:
		if recursive {
			s.recAttrs.apply(option.kind, option.bits)
		} else {
			s.attrs.apply(option.kind, option.bits)
		}
	case setParam:
		if !slices.Contains(s.params, option.param) {
			s.params = append(s.params, option.param)
		}
	case clearParam:
		s.params = slices.DeleteFunc(s.params, func(param string) bool { return param == option.param })
	case bindOption:
		s.bind = true
		s.recursive = s.recursive || option.bits == unix.MS_REC
	case remountOption:
		s.remount = true
	case copyUpOption:
		s.copyUp = true
	case idmapOption:
		s.idmap = &IDMap{Recursive: option.bits == unix.MS_REC}
	}
}

// addPropagation merges private with rprivate and the like. Two kinds would
// have to be applied one after the other, which nobody has asked for yet.
func (s *optionSet) addPropagation(field, name string, bits uint64) error {
	if s.propagation != 0 && (s.propagation^bits)&^unix.MS_REC != 0 {
		return unsupportedValue(field, name, "a second kind of propagation is "+notYet)
	}
	s.propagation |= bits
	return nil
}

// splitData takes apart an option that holds several of a file system's own,
// as mount(2) would: at commas, but for those in double quotes (security
// labels) or after a backslash (paths of an overlay).
func splitData(option string) []string {
	var data []string
	begin, quoted := 0, false
	for i := 0; i <= len(option); i++ {
		switch {
		case i == len(option) || option[i] == ',' && !quoted:
			if begin < i {
				data = append(data, option[begin:i])
			}
			begin = i + 1
		case option[i] == '\\' && i+1 < len(option):
			i++
		case option[i] == '"':
			quoted = !quoted
		}
	}
	return data
}
