package linux

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"eggrun/internal/need"

	"golang.org/x/sys/unix"
)

// TestSpawnConcurrently spawns while other goroutines do, and while os/exec
// starts programs: none may get descriptors of another.
func TestSpawnConcurrently(t *testing.T) {
	need.Root(t)
	exe, err := os.OpenFile("/proc/self/exe", unix.O_PATH, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer exe.Close()
	before := openFDs(t, "self")
	net := openNamespace(t, os.Getpid(), "net")
	requests := []SpawnRequest{
		{},
		{New: unix.CLONE_NEWUTS},
		{Join: []*os.File{net}},
		{New: unix.CLONE_NEWUSER, MapIDs: shiftedMap},
	}
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			for n := range 10 {
				if i%4 == 3 {
					out, err := exec.Command("ls", "/proc/self/fd").Output()
					if err != nil || string(out) != "0\n1\n2\n3\n" {
						t.Errorf("descriptors of another program: %q (%v)", out, err)
					}
					continue
				}
				spawnAndCount(t, exe, requests[(i+n)%len(requests)])
			}
		})
	}
	group.Wait()
	net.Close()
	wantEqual(t, "descriptors", openFDs(t, "self"), before)
	wantNoChild(t)
}

// spawnAndCount spawns a child that holds one end of a pipe and needs it to have
// no other descriptor, and nobody else to hold that end.
func spawnAndCount(t *testing.T, exe *os.File, req SpawnRequest) {
	read, write, err := os.Pipe()
	if err != nil {
		t.Error(err)
		return
	}
	defer write.Close()
	req.Exe, req.Argv = exe, []string{"block", strconv.Itoa(int(read.Fd()))}
	req.Env, req.Keep = append(os.Environ(), childEnv+"=block"), []*os.File{read}
	child, err := SpawnIn(req)
	if err != nil {
		read.Close()
		t.Error(err)
		return
	}
	defer child.Pidfd.Close()
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", child.PID))
	if err != nil {
		t.Error(err)
	}
	for _, entry := range entries {
		target, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%s", child.PID, entry.Name()))
		isOther := strings.HasPrefix(target, "pipe:") && entry.Name() != strconv.Itoa(int(read.Fd()))
		if fd, _ := strconv.Atoi(entry.Name()); err == nil && isOther && fd > 2 {
			t.Errorf("descriptor %s is %s", entry.Name(), target)
		}
	}
	read.Close()
	write.Close() // the child reads its end and leaves
	var status unix.WaitStatus
	_, err = retry(func() (int, error) { return unix.Wait4(child.PID, &status, 0, nil) })
	if err != nil || !status.Exited() || status.ExitStatus() != 0 {
		t.Errorf("child ended with %v (%v)", status, err)
	}
}

// TestSpawnOrderFallback joins namespaces that only the user namespace's root
// may join, as a user who owns them and is root of nothing else.
func TestSpawnOrderFallback(t *testing.T) {
	if !need.Child(t, syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}) {
		return
	}
	ownMap := func(pid int) error {
		for _, f := range [][2]string{{"setgroups", "deny"}, {"uid_map", "0 65534 1"}, {"gid_map", "0 65534 1"}} {
			if err := os.WriteFile(fmt.Sprintf("/proc/%d/%s", pid, f[0]), []byte(f[1]), 0); err != nil {
				return err
			}
		}
		return nil
	}
	var target *Child
	need.That(t, "user namespaces without root", func() (err error) {
		target, err = SpawnIn(SpawnRequest{
			Exe: sleep(t), Argv: []string{"sleep", "60"},
			New:    unix.CLONE_NEWUSER | unix.CLONE_NEWNET | unix.CLONE_NEWUTS | unix.CLONE_NEWPID | unix.CLONE_NEWNS,
			MapIDs: ownMap,
		})
		return err
	})
	defer end(t, target)
	user := openNamespace(t, target.PID, "user")
	var join []*os.File
	for _, name := range []string{"mnt", "net", "uts", "pid"} {
		join = append(join, openNamespace(t, target.PID, name))
	}
	child := spawn(t, SpawnRequest{Join: join, JoinUser: user})
	for _, ns := range namespaceFlags {
		from := any(target.PID)
		if ns.name == "ipc" || ns.name == "cgroup" {
			from = "self"
		}
		wantEqual(t, ns.name, namespace(t, child.PID, ns.name), namespace(t, from, ns.name))
	}
	for name, req := range map[string]SpawnRequest{
		"without the user namespace": {Join: join[1:2]},
		// Refused before and after: it is no less refused for the trying.
		"somebody else's": {Join: []*os.File{openNamespace(t, os.Getpid(), "net")}, JoinUser: user},
	} {
		req.Exe, req.Argv = sleep(t), []string{"sleep", "60"}
		c, err := SpawnIn(req)
		if err == nil {
			end(t, c)
		}
		if !errors.Is(err, unix.EPERM) || !strings.HasPrefix(err.Error(), "setns: ") {
			t.Errorf("%s: error %v, want setns: EPERM", name, err)
		}
	}
	end(t, child)
	end(t, target)
	wantNoChild(t)
}

// TestSpawnParentDies needs a child that waits for its id maps to end with the
// process that was to write them.
func TestSpawnParentDies(t *testing.T) {
	need.Root(t)
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), childEnv+"=orphan")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var pid int
	if _, err := fmt.Fscan(out, &pid); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
	t.Cleanup(func() { _ = unix.Kill(pid, unix.SIGKILL) })
	eventually(t, "the orphan's end", func() bool {
		_, err := FindProcess(pid)
		return errors.Is(err, unix.ESRCH)
	})
}

// childOrphan is killed while its own child waits for id maps.
func childOrphan() {
	exe, err := os.Open("/proc/self/exe")
	if err != nil {
		panic(err)
	}
	_, err = SpawnIn(SpawnRequest{
		Exe: exe, Argv: []string{"x"}, New: unix.CLONE_NEWUSER,
		MapIDs: func(pid int) error {
			fmt.Println(pid)
			return unix.Kill(os.Getpid(), unix.SIGKILL)
		},
	})
	panic(err)
}
