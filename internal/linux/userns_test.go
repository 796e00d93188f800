package linux

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"eggrun/internal/need"

	"golang.org/x/sys/unix"
)

// ownProc mounts the procfs of a new pid namespace, in a new mount namespace.
func ownProc(t *testing.T) {
	t.Helper()
	err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
	if err == nil {
		err = unix.Mount("proc", "/proc", "proc", 0, "")
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestNewUserNamespace(t *testing.T) {
	if !isolated(t, unix.CLONE_NEWPID|unix.CLONE_NEWNS) {
		return
	}
	ownProc(t)
	var pid int
	userNS, err := NewUserNamespace(func(p int) error {
		pid = p
		return shiftedMap(p)
	})
	if err != nil {
		t.Fatal(err)
	}
	defer userNS.Close()
	wantNoChild(t)
	if _, err := FindProcess(pid); !errors.Is(err, unix.ESRCH) {
		t.Errorf("process %d: %v, want it gone", pid, err)
	}
	kind, err := unix.IoctlRetInt(int(userNS.Fd()), unix.NS_GET_NSTYPE)
	if err != nil || kind != unix.CLONE_NEWUSER {
		t.Errorf("type %#x, %v, want a user namespace", kind, err)
	}
	// Its maps are those that were written.
	child := spawn(t, SpawnRequest{JoinUser: userNS})
	wantEqual(t, "uid_map", strings.Fields(procFile(t, child.PID, "uid_map")), []string{"0", "100000", "65536"})
	end(t, child)
}

func TestNewUserNamespaceLeavesNothing(t *testing.T) {
	if !isolated(t, unix.CLONE_NEWPID|unix.CLONE_NEWNS) {
		return
	}
	ownProc(t)
	// The first use of a pipe opens Go's poller.
	if first, err := NewUserNamespace(shiftedMap); err != nil {
		t.Fatal(err)
	} else {
		first.Close()
	}
	before := openFDs(t, "self")
	userNS, err := NewUserNamespace(shiftedMap)
	if err != nil {
		t.Fatal(err)
	}
	userNS.Close()
	wantNoChild(t)
	wantEqual(t, "descriptors", openFDs(t, "self"), before)

	refused := errors.New("no such map")
	if f, err := NewUserNamespace(func(int) error { return refused }); f != nil || !errors.Is(err, refused) {
		t.Errorf("got %v, %v, want %v", f, err, refused)
	}
	wantNoChild(t)
	wantEqual(t, "descriptors after an error", openFDs(t, "self"), before)
}

func TestSetIDMap(t *testing.T) {
	if !isolated(t, unix.CLONE_NEWNS) {
		return
	}
	userNS, err := NewUserNamespace(shiftedMap)
	if err != nil {
		t.Fatal(err)
	}
	defer userNS.Close()
	fs, err := NewMount("tmpfs", "test", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer fs.Close()
	owner := func(f *os.File) uint32 {
		var stat unix.Stat_t
		if err := unix.Fstatat(int(f.Fd()), ".", &stat, 0); err != nil {
			t.Fatal(err)
		}
		return stat.Uid
	}
	for _, recursive := range []bool{false, true} {
		tree, err := CloneTreeAt(fs, true)
		if err != nil {
			t.Fatal(err)
		}
		defer tree.Close()
		wantEqual(t, "owner before", owner(tree), 0)
		if err := SetIDMap(tree, userNS, recursive); err != nil {
			t.Fatal(err)
		}
		wantEqual(t, "owner in the mapped copy", owner(tree), 100000)
		wantEqual(t, "owner in the other", owner(fs), 0)
		wantErrno(t, SetIDMap(tree, userNS, recursive), unix.EPERM)
	}
	proc, err := CloneTree("/proc", false)
	if err != nil {
		t.Fatal(err)
	}
	defer proc.Close()
	wantErrno(t, SetIDMap(proc, userNS, false), unix.EINVAL)
}

func TestPidfdGetFD(t *testing.T) {
	t.Parallel()
	need.Root(t)
	path := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(path, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	child := spawn(t, SpawnRequest{Keep: []*os.File{f}})
	copied, err := PidfdGetFD(child.Pidfd, int(f.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	defer copied.Close()
	if same, err := SameFile(f, copied); err != nil || !same {
		t.Errorf("another file, or %v", err)
	}
	flags, err := unix.FcntlInt(copied.Fd(), unix.F_GETFD, 0)
	if err != nil || flags&unix.FD_CLOEXEC == 0 {
		t.Error("not close-on-exec")
	}
	_, err = PidfdGetFD(child.Pidfd, 1000)
	wantErrno(t, err, unix.EBADF)
}

// TestSendFileLong sends more than a socket holds.
func TestSendFileLong(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "socket")
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := errors.Join(unix.Bind(fd, &unix.SockaddrUnix{Name: path}), unix.Listen(fd, 1)); err != nil {
		t.Fatal(err)
	}
	payload := strings.Repeat("0123456789abcdef", 1<<16)
	sent := make(chan error, 1)
	go func() { sent <- SendFile(path, payload, os.Stdin) }()
	conn, _, err := unix.Accept4(fd, unix.SOCK_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(conn), "connection")
	defer f.Close()
	first, control := make([]byte, 1), make([]byte, unix.CmsgSpace(4))
	n, nControl, _, _, err := unix.Recvmsg(conn, first, control, unix.MSG_CMSG_CLOEXEC)
	if err != nil || n != 1 || nControl != len(control) {
		t.Fatalf("got %d and %d bytes, %v, want a descriptor beside the first byte", n, nControl, err)
	}
	rest, err := io.ReadAll(f)
	if err != nil || string(first)+string(rest) != payload {
		t.Errorf("got %d bytes, %v, want all %d", 1+len(rest), err, len(payload))
	}
	if err := <-sent; err != nil {
		t.Error(err)
	}
}

// TestSpawnInCgroup asks for a cgroup that is none: the child starts in the
// caller's. With cgroup v2 mounted it also asks for one.
func TestSpawnInCgroup(t *testing.T) {
	if !isolated(t, unix.CLONE_NEWNS) {
		return
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		t.Fatal(err)
	}
	notOne, err := os.Open("/proc")
	if err != nil {
		t.Fatal(err)
	}
	defer notOne.Close()
	child := spawn(t, SpawnRequest{Cgroup: notOne})
	wantEqual(t, "in the cgroup", child.InCgroup, false)
	wantEqual(t, "its cgroups", procFile(t, child.PID, "cgroup"), procFile(t, "self", "cgroup"))

	mountpoint := t.TempDir()
	need.That(t, "cgroup v2", func() error { return unix.Mount("cgroup2", mountpoint, "cgroup2", 0, "") })
	defer func() { _ = unix.Unmount(mountpoint, unix.MNT_DETACH) }()
	dir := filepath.Join(mountpoint, fmt.Sprintf("eggrun-test-%d", os.Getpid()))
	need.That(t, "a cgroup v2 to make cgroups in", func() error { return os.Mkdir(dir, 0o755) })
	defer func() {
		eventually(t, "empty cgroup", func() bool { return os.Remove(dir) == nil })
	}()
	cgroup, err := os.OpenFile(dir, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer cgroup.Close()
	for _, req := range []SpawnRequest{
		{Cgroup: cgroup},
		{Cgroup: cgroup, New: unix.CLONE_NEWUSER | unix.CLONE_NEWPID, MapIDs: shiftedMap},
		{Cgroup: cgroup, New: unix.CLONE_NEWTIME},
	} {
		child := spawn(t, req)
		wantEqual(t, "in the cgroup", child.InCgroup, true)
		if got := procFile(t, child.PID, "cgroup"); !strings.Contains(got, "0::/") || !strings.Contains(got, filepath.Base(dir)+"\n") {
			t.Errorf("cgroups %q, want %s", got, filepath.Base(dir))
		}
		end(t, child)
	}
}
