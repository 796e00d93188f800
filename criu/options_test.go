package main

import (
	"os"
	"testing"

	"eggrun/internal/syncsocket"
)

// TestInherited: the numbers are criu's, where 3 is its socket and each further
// file follows.
func TestInherited(t *testing.T) {
	t.Parallel()
	s := &session{images: os.Stdin, request: &syncsocket.Criu{
		Task: syncsocket.CriuRestore, RootDir: "/root-dir", Rootfs: "/rootfs",
		InheritFDs: []syncsocket.CriuInherit{
			{Key: "pipe:[1]", IsStream: true, Stream: 1},
			{Key: "extRootNetNS"},
			{Key: "pipe:[2]", IsStream: true, Stream: 0},
			{Key: "extRootPidNS"},
		},
	}}
	opts := s.options()
	want := map[string]int32{"pipe:[1]": 1, "extRootNetNS": 4, "pipe:[2]": 0, "extRootPidNS": 5}
	if len(opts.GetInheritFd()) != len(want) {
		t.Errorf("%d descriptors, want %d", len(opts.GetInheritFd()), len(want))
	}
	for _, fd := range opts.GetInheritFd() {
		if got, ok := want[fd.GetKey()]; !ok || got != fd.GetFd() {
			t.Errorf("%s is descriptor %d, want %d", fd.GetKey(), fd.GetFd(), got)
		}
	}
	if opts.GetRoot() != "/root-dir" || !opts.GetRstSibling() {
		t.Errorf("root %q, sibling %v", opts.GetRoot(), opts.GetRstSibling())
	}
}

// TestDumpOptions: the memory is tracked for a parent, and only for one.
func TestDumpOptions(t *testing.T) {
	t.Parallel()
	for _, parent := range []string{"", "../parent"} {
		s := &session{images: os.Stdin, request: &syncsocket.Criu{
			Task: syncsocket.CriuDump, PID: 7, Rootfs: "/rootfs", Options: syncsocket.CriuOptions{ParentPath: parent, CgroupsMode: "ignore"},
		}}
		opts := s.options()
		if opts.GetTrackMem() != (parent != "") || opts.GetParentImg() != parent {
			t.Errorf("parent %q: %q, tracked %v", parent, opts.GetParentImg(), opts.GetTrackMem())
		}
		if opts.GetPid() != 7 || opts.GetRoot() != "/rootfs" || opts.GetManageCgroupsMode() != cgroupModes["ignore"] {
			t.Errorf("options %+v", opts)
		}
	}
}
