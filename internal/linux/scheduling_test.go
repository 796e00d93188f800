package linux

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	"eggrun/internal/need"

	"golang.org/x/sys/unix"
)

func TestSetPersonality(t *testing.T) {
	for persona, want := range map[uint32]string{0: "00000000", 8: "00000008"} {
		onThread(t, func() error {
			err := SetPersonality(persona)
			wantEqual(t, "personality", strings.TrimSpace(procFile(t, "thread-self", "personality")), want)
			return err
		})
	}
}

func TestSetMemoryPolicy(t *testing.T) {
	need.That(t, "a kernel with NUMA", func() error { return SetMemoryPolicy(unix.MPOL_DEFAULT, nil) })
	node0 := unix.NewCPUSet(1)
	node0.Set(0)
	for _, test := range []struct {
		mode  int
		nodes unix.CPUSetDynamic
		want  string
	}{
		{unix.MPOL_DEFAULT, nil, "default"},
		{unix.MPOL_LOCAL, nil, "local"},
		{unix.MPOL_BIND, node0, "bind:0"},
		{unix.MPOL_INTERLEAVE | unix.MPOL_F_STATIC_NODES, node0, "interleave=static:0"},
	} {
		onThread(t, func() error {
			err := SetMemoryPolicy(test.mode, test.nodes)
			line, _, _ := strings.Cut(procFile(t, "thread-self", "numa_maps"), "\n")
			wantEqual(t, "policy", strings.Fields(line)[1], test.want)
			return err
		})
	}
	wantErrno(t, SetMemoryPolicy(unix.MPOL_BIND, nil), unix.EINVAL)
}

// TestMemoryPolicyBits has a node at each end of a word of the mask, which a
// length in bytes, or one bit too short, would lose: the kernel refuses a node
// only if it sees it.
func TestMemoryPolicyBits(t *testing.T) {
	need.That(t, "a kernel with NUMA", func() error { return SetMemoryPolicy(unix.MPOL_DEFAULT, nil) })
	for _, node := range []int{7, 8, 63, 64, 127} {
		nodes := unix.NewCPUSet(node + 1)
		nodes.Set(node)
		// What MPOL_DEFAULT does not take is a node that was seen.
		wantErrno(t, SetMemoryPolicy(unix.MPOL_DEFAULT, nodes), unix.EINVAL)
	}
}

func TestSetIOPriority(t *testing.T) {
	if !isolated(t, 0) {
		return
	}
	if err := unix.Setpgid(0, 0); err != nil { // the group that it is set for
		t.Fatal(err)
	}
	for _, value := range []int{3 << 13, 2<<13 | 7, 2<<13 | 1} {
		if err := SetIOPriority(value); err != nil {
			t.Errorf("%#x: %v", value, err)
		}
		got := make(chan string)
		go func() { // on whichever thread
			const whoProcess = 1
			n, _, errno := unix.RawSyscall(unix.SYS_IOPRIO_GET, whoProcess, 0, 0)
			got <- fmt.Sprint(n, errno)
		}()
		wantEqual(t, "I/O priority", <-got, fmt.Sprint(value, syscall.Errno(0)))
	}
	wantErrno(t, SetIOPriority(4<<13), unix.EINVAL)
}
