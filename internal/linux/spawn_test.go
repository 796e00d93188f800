package linux

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"testing"

	"eggrun/internal/need"

	"golang.org/x/sys/unix"
)

// namespaceFlags are the namespaces by their names in /proc/PID/ns. Joined in
// this order, they need no rights that an earlier one takes away.
var namespaceFlags = []struct {
	name string
	flag uintptr
}{
	{"net", unix.CLONE_NEWNET},
	{"ipc", unix.CLONE_NEWIPC},
	{"uts", unix.CLONE_NEWUTS},
	{"cgroup", unix.CLONE_NEWCGROUP},
	{"pid", unix.CLONE_NEWPID},
	{"mnt", unix.CLONE_NEWNS},
	{"user", unix.CLONE_NEWUSER},
}

// namespace returns which namespace a process is in.
func namespace(t *testing.T, pid any, name string) string {
	t.Helper()
	link, err := os.Readlink(fmt.Sprintf("/proc/%v/ns/%s", pid, name))
	if err != nil {
		t.Fatal(err)
	}
	return link
}

func openNamespace(t *testing.T, pid int, name string) *os.File {
	t.Helper()
	f, err := os.Open(fmt.Sprintf("/proc/%d/ns/%s", pid, name))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func TestSpawnPlain(t *testing.T) {
	child := spawn(t, SpawnRequest{
		Exe:  sleep(t),
		Argv: []string{"anything", "60"},
		Env:  []string{"A=1", "A=2", "without equals"},
	})
	wantEqual(t, "argv", procFile(t, child.PID, "cmdline"), "anything\x0060\x00")
	wantEqual(t, "environment", procFile(t, child.PID, "environ"), "A=1\x00A=2\x00without equals\x00")
	wantEqual(t, "parent", statusField(t, child.PID, "PPid"), []string{strconv.Itoa(os.Getpid())})
	for _, ns := range namespaceFlags {
		wantEqual(t, ns.name, namespace(t, child.PID, ns.name), namespace(t, "self", ns.name))
	}
	wantEqual(t, "blocked signals", statusField(t, child.PID, "SigBlk"), statusField(t, "thread-self", "SigBlk"))
	wantEqual(t, "caught signals", statusField(t, child.PID, "SigCgt"), []string{"0000000000000000"})
	end(t, child)
	wantNoChild(t)
}

func TestSpawnNew(t *testing.T) {
	need.Root(t)
	for _, ns := range namespaceFlags {
		t.Run(ns.name, func(t *testing.T) {
			child := spawn(t, SpawnRequest{New: ns.flag, MapIDs: shiftedMap})
			for _, other := range namespaceFlags {
				isNew := namespace(t, child.PID, other.name) != namespace(t, "self", other.name)
				wantEqual(t, "new "+other.name, isNew, other.name == ns.name)
			}
			wantEqual(t, "parent", statusField(t, child.PID, "PPid"), []string{strconv.Itoa(os.Getpid())})
		})
	}
	wantNoChild(t)
}

// TestSpawnJoin joins one namespace of another process after the other, and all
// of them.
func TestSpawnJoin(t *testing.T) {
	need.Root(t)
	var all uintptr
	for _, ns := range namespaceFlags {
		all |= ns.flag
	}
	target := spawn(t, SpawnRequest{New: all, MapIDs: shiftedMap})
	wantJoined := func(t *testing.T, req SpawnRequest, joined ...string) {
		t.Helper()
		child := spawn(t, req)
		for _, ns := range namespaceFlags {
			from := any("self")
			if slices.Contains(joined, ns.name) {
				from = target.PID
			}
			wantEqual(t, ns.name, namespace(t, child.PID, ns.name), namespace(t, from, ns.name))
		}
		wantEqual(t, "parent", statusField(t, child.PID, "PPid"), []string{strconv.Itoa(os.Getpid())})
		wantEqual(t, "kept descriptors", eventuallyFDs(t, child.PID, 0, 1, 2), true)
	}
	var others []*os.File
	var names []string
	for _, ns := range namespaceFlags {
		f := openNamespace(t, target.PID, ns.name)
		if ns.name == "user" {
			continue
		}
		t.Run(ns.name, func(t *testing.T) { wantJoined(t, SpawnRequest{Join: []*os.File{f}}, ns.name) })
		others, names = append(others, f), append(names, ns.name)
	}
	user := openNamespace(t, target.PID, "user")
	t.Run("user", func(t *testing.T) { wantJoined(t, SpawnRequest{JoinUser: user}, "user") })
	t.Run("all but user", func(t *testing.T) { wantJoined(t, SpawnRequest{Join: others}, names...) })
	t.Run("all", func(t *testing.T) {
		wantJoined(t, SpawnRequest{Join: others, JoinUser: user}, append(names, "user")...)
	})
	t.Run("bind mount of one", func(t *testing.T) {
		// Any open file of a namespace will do, whatever its name is.
		f, err := os.Open(fmt.Sprintf("/proc/self/fd/%d", others[0].Fd()))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		wantJoined(t, SpawnRequest{Join: []*os.File{f}}, names[0])
	})
	t.Run("joined and new", func(t *testing.T) {
		child := spawn(t, SpawnRequest{Join: others[:1], New: unix.CLONE_NEWUTS | unix.CLONE_NEWPID})
		wantEqual(t, "net", namespace(t, child.PID, "net"), namespace(t, target.PID, "net"))
		for _, name := range []string{"uts", "pid"} {
			got := namespace(t, child.PID, name)
			if got == namespace(t, "self", name) || got == namespace(t, target.PID, name) {
				t.Errorf("%s namespace is not new", name)
			}
		}
		wantEqual(t, "pids", len(statusField(t, child.PID, "NSpid")), 2)
	})
	t.Run("joined and new user namespace", func(t *testing.T) {
		child := spawn(t, SpawnRequest{Join: others[:1], New: unix.CLONE_NEWUSER, MapIDs: shiftedMap, UID: 7, GID: 8})
		wantEqual(t, "net", namespace(t, child.PID, "net"), namespace(t, target.PID, "net"))
		wantEqual(t, "uids", statusField(t, child.PID, "Uid"), []string{"100007", "100007", "100007", "100007"})
	})
}

// eventuallyFDs waits until a process has exactly these descriptors: the dynamic
// linker opens others for a moment.
func eventuallyFDs(t *testing.T, pid int, want ...int) bool {
	t.Helper()
	eventually(t, fmt.Sprintf("descriptors %v, not %v", want, openFDs(t, pid)), func() bool {
		return slices.Equal(openFDs(t, pid), want)
	})
	return true
}

func TestSpawnUserIDs(t *testing.T) {
	need.Root(t)
	for _, tt := range []struct {
		uid, gid uint32
		effCaps  bool
	}{
		{uid: 0, gid: 0, effCaps: true},
		{uid: 1000, gid: 100, effCaps: false},
	} {
		child := spawn(t, SpawnRequest{New: unix.CLONE_NEWUSER, MapIDs: shiftedMap, UID: tt.uid, GID: tt.gid})
		uid, gid := strconv.Itoa(100000+int(tt.uid)), strconv.Itoa(100000+int(tt.gid))
		wantEqual(t, "uids", statusField(t, child.PID, "Uid"), []string{uid, uid, uid, uid})
		wantEqual(t, "gids", statusField(t, child.PID, "Gid"), []string{gid, gid, gid, gid})
		wantEqual(t, "groups", statusField(t, child.PID, "Groups"), []string{})
		capabilities := statusField(t, child.PID, "CapEff")[0]
		wantEqual(t, "has capabilities", capabilities != "0000000000000000", tt.effCaps)
		joined := spawn(t, SpawnRequest{JoinUser: openNamespace(t, child.PID, "user"), UID: tt.uid, GID: tt.gid})
		for _, field := range []string{"Uid", "Gid", "Groups", "CapEff"} {
			wantEqual(t, "joined "+field, statusField(t, joined.PID, field), statusField(t, child.PID, field))
		}
	}
}

// TestSpawnMapIDsError needs the waiting child to be gone.
func TestSpawnMapIDsError(t *testing.T) {
	need.Root(t)
	wrong := errors.New("no such map")
	for name, join := range map[string][]*os.File{
		"new":            nil,
		"joined and new": {openNamespace(t, os.Getpid(), "net")},
	} {
		t.Run(name, func(t *testing.T) {
			var waiting int
			_, err := SpawnIn(SpawnRequest{
				Exe: sleep(t), Argv: []string{"sleep", "60"}, Join: join,
				New: unix.CLONE_NEWUSER,
				MapIDs: func(pid int) error {
					waiting = pid
					wantEqual(t, "parent", statusField(t, pid, "PPid"), []string{strconv.Itoa(os.Getpid())})
					return wrong
				},
			})
			if !errors.Is(err, wrong) {
				t.Errorf("error %v, want %v", err, wrong)
			}
			if _, err := FindProcess(waiting); !errors.Is(err, unix.ESRCH) {
				t.Errorf("the child lives: %v", err)
			}
			wantNoChild(t)
		})
	}
}

func TestSpawnErrors(t *testing.T) {
	need.Root(t)
	dir := t.TempDir()
	notExecutable := filepath.Join(dir, "file")
	if err := os.WriteFile(notExecutable, []byte("text"), 0o644); err != nil {
		t.Fatal(err)
	}
	badFormat := filepath.Join(dir, "bad")
	if err := os.WriteFile(badFormat, []byte("text"), 0o755); err != nil {
		t.Fatal(err)
	}
	net := openNamespace(t, os.Getpid(), "net")
	null, err := os.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	for _, tt := range []struct {
		name, exe string
		req       SpawnRequest
		want      syscall.Errno
		text      string
	}{
		{"not executable", notExecutable, SpawnRequest{}, unix.EACCES, "execveat: permission denied"},
		{"no program", badFormat, SpawnRequest{}, unix.ENOEXEC, "execveat: exec format error"},
		{"no program, two children", badFormat, SpawnRequest{Join: []*os.File{net}}, unix.ENOEXEC, "execveat: exec format error"},
		{"no program, user namespace", badFormat, SpawnRequest{New: unix.CLONE_NEWUSER, MapIDs: shiftedMap}, unix.ENOEXEC, "execveat: exec format error"},
		{"no namespace", "/bin/sh", SpawnRequest{Join: []*os.File{null}}, unix.EINVAL, "setns: invalid argument"},
		{"no user namespace", "/bin/sh", SpawnRequest{JoinUser: net}, unix.EINVAL, "setns user: invalid argument"},
		{"own user namespace", "/bin/sh", SpawnRequest{JoinUser: openNamespace(t, os.Getpid(), "user")}, unix.EINVAL, "setns user: invalid argument"},
		{"unmapped uid", "/bin/sh", SpawnRequest{New: unix.CLONE_NEWUSER, MapIDs: shiftedMap, UID: 70000}, unix.EINVAL, "setuid: invalid argument"},
		{"unmapped gid", "/bin/sh", SpawnRequest{New: unix.CLONE_NEWUSER, MapIDs: shiftedMap, GID: 70000}, unix.EINVAL, "setgid: invalid argument"},
		{"wrong flags", "/bin/sh", SpawnRequest{New: unix.CLONE_NEWNS | unix.CLONE_FS}, unix.EINVAL, "clone: invalid argument"},
		{"wrong flags, two children", "/bin/sh", SpawnRequest{Join: []*os.File{net}, New: unix.CLONE_NEWNS | unix.CLONE_FS}, unix.EINVAL, "clone: invalid argument"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			exe, err := os.OpenFile(tt.exe, unix.O_PATH, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer exe.Close()
			tt.req.Exe, tt.req.Argv = exe, []string{"x"}
			before := openFDs(t, "self")
			// More than once: whose report comes first is a matter of luck.
			for range 20 {
				child, err := SpawnIn(tt.req)
				if err == nil {
					end(t, child)
				}
				wantErrno(t, err, tt.want)
				if err != nil {
					wantEqual(t, "text", err.Error(), tt.text)
				}
			}
			wantNoChild(t)
			wantEqual(t, "descriptors", openFDs(t, "self"), before)
		})
	}
	t.Run("NUL", func(t *testing.T) {
		for _, req := range []SpawnRequest{{Argv: []string{"a\x00b"}}, {Argv: []string{"a"}, Env: []string{"A=\x00"}}} {
			req.Exe = sleep(t)
			_, err := SpawnIn(req)
			wantErrno(t, err, unix.EINVAL)
		}
		wantNoChild(t)
	})
}

// TestSpawnKeep needs the child to have the descriptors that it is to keep, at
// their numbers, and no other.
func TestSpawnKeep(t *testing.T) {
	for _, req := range []SpawnRequest{{}, {Join: []*os.File{openNamespace(t, os.Getpid(), "uts")}}} {
		if req.Join != nil && os.Geteuid() != 0 {
			continue
		}
		read, write, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer read.Close()
		defer write.Close()
		preserved, err := unix.FcntlInt(read.Fd(), unix.F_DUPFD_CLOEXEC, 70)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(preserved)
		req.Keep, req.Preserve = []*os.File{read}, []int{preserved}
		child := spawn(t, req)
		eventuallyFDs(t, child.PID, 0, 1, 2, int(read.Fd()), preserved)
		for _, fd := range []int{int(read.Fd()), preserved} {
			link, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", child.PID, fd))
			if err != nil {
				t.Fatal(err)
			}
			own, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
			if err != nil {
				t.Fatal(err)
			}
			wantEqual(t, "kept file", link, own)
			flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
			wantEqual(t, "own flags, error", fmt.Sprint(flags, err), fmt.Sprint(unix.FD_CLOEXEC, nil))
		}
	}
}
