package linux

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"eggrun/internal/need"

	"golang.org/x/sys/unix"
)

// hourAhead has an hour for one clock and two for the other.
const hourAhead = "monotonic 3600 0\nboottime 7200 5\n"

// offsets are the clocks of the time namespace that a process is in, its fields
// divided by spaces.
func offsets(t *testing.T, pid int) string {
	t.Helper()
	return strings.Join(strings.Fields(procFile(t, pid, "timens_offsets")), " ")
}

// TestSpawnTime makes a time namespace beside each kind of other request.
func TestSpawnTime(t *testing.T) {
	need.Root(t)
	other := spawn(t, SpawnRequest{New: unix.CLONE_NEWUTS | unix.CLONE_NEWUSER | unix.CLONE_NEWNS, MapIDs: shiftedMap})
	uts := openNamespace(t, other.PID, "uts")
	mnt := openNamespace(t, other.PID, "mnt")
	user := openNamespace(t, other.PID, "user")
	for _, test := range []struct {
		name string
		req  SpawnRequest
		uid  string
	}{
		{"alone", SpawnRequest{}, "0"},
		{"with all others", SpawnRequest{New: unix.CLONE_NEWPID | unix.CLONE_NEWNS | unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS}, "0"},
		{"with a user namespace", SpawnRequest{New: unix.CLONE_NEWUSER | unix.CLONE_NEWPID, MapIDs: shiftedMap}, "100000"},
		{"with a user namespace and a user", SpawnRequest{New: unix.CLONE_NEWUSER, MapIDs: shiftedMap, UID: 7, GID: 7}, "100007"},
		{"with a joined one", SpawnRequest{Join: []*os.File{uts, mnt}}, "0"},
		{"with a joined one and a user namespace", SpawnRequest{Join: []*os.File{uts}, New: unix.CLONE_NEWUSER, MapIDs: shiftedMap}, "100000"},
		{"with a joined user namespace", SpawnRequest{Join: []*os.File{uts}, JoinUser: user}, "100000"},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.req.New |= unix.CLONE_NEWTIME
			test.req.TimeOffsets = []byte(hourAhead)
			child := spawn(t, test.req)
			if namespace(t, child.PID, "time") == namespace(t, "self", "time") {
				t.Error("the time namespace is ours")
			}
			wantEqual(t, "namespace of its children", namespace(t, child.PID, "time_for_children"), namespace(t, child.PID, "time"))
			wantEqual(t, "offsets", offsets(t, child.PID), "monotonic 3600 0 boottime 7200 5")
			wantEqual(t, "uid", statusField(t, child.PID, "Uid")[0], test.uid)
			wantEqual(t, "own offsets", offsets(t, os.Getpid()), "monotonic 0 0 boottime 0 0")
		})
	}
	wantNoChildBut(t, other)
}

// wantNoChildBut ends the last child that is there.
func wantNoChildBut(t *testing.T, last *Child) {
	t.Helper()
	end(t, last)
	wantNoChild(t)
}

// TestSpawnTimeOwner: a caller without rights over its own time namespace may
// make one only together with a user namespace, which must then own it.
func TestSpawnTimeOwner(t *testing.T) {
	need.Root(t)
	child := spawn(t, SpawnRequest{New: unix.CLONE_NEWUSER | unix.CLONE_NEWTIME, MapIDs: shiftedMap})
	fd, err := unix.IoctlRetInt(int(openNamespace(t, child.PID, "time").Fd()), unix.NS_GET_USERNS)
	if err != nil {
		t.Fatal(err)
	}
	owner := os.NewFile(uintptr(fd), "owner")
	defer owner.Close()
	same, err := SameFile(owner, openNamespace(t, child.PID, "user"))
	if err != nil || !same {
		t.Errorf("the time namespace is not the user namespace's (%v)", err)
	}
}

func TestSpawnJoinTime(t *testing.T) {
	need.Root(t)
	ahead := spawn(t, SpawnRequest{New: unix.CLONE_NEWTIME, TimeOffsets: []byte(hourAhead)})
	joined := spawn(t, SpawnRequest{Join: []*os.File{openNamespace(t, ahead.PID, "time")}})
	wantEqual(t, "time namespace", namespace(t, joined.PID, "time"), namespace(t, ahead.PID, "time"))
	wantEqual(t, "offsets", offsets(t, joined.PID), "monotonic 3600 0 boottime 7200 5")
	without := spawn(t, SpawnRequest{New: unix.CLONE_NEWTIME})
	wantEqual(t, "offsets where none are given", offsets(t, without.PID), "monotonic 0 0 boottime 0 0")
}

// TestSpawnTimeErrors has the kernel refuse an offset by which a clock would be
// behind the boot.
func TestSpawnTimeErrors(t *testing.T) {
	need.Root(t)
	for _, test := range []struct {
		name, offsets string
		want          syscall.Errno
		text          string
	}{
		{"too far back", "monotonic -9000000000 0\n", unix.ERANGE, "write timens_offsets: numerical result out of range"},
		{"no such clock", "realtime 1 0\n", unix.EINVAL, "write timens_offsets: invalid argument"},
	} {
		for _, flags := range []uintptr{0, unix.CLONE_NEWUSER} {
			_, err := SpawnIn(SpawnRequest{
				Exe: sleep(t), Argv: []string{"sleep", "60"}, New: unix.CLONE_NEWTIME | flags,
				MapIDs: shiftedMap, TimeOffsets: []byte(test.offsets),
			})
			wantErrno(t, err, test.want)
			wantEqual(t, test.name, fmt.Sprint(err), test.text)
		}
	}
	wantNoChild(t)
}
