package linux

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"eggrun/internal/need"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

func bit(capabilities ...uint) string {
	var mask uint64
	for _, c := range capabilities {
		mask |= 1 << c
	}
	return fmt.Sprintf("%016x", mask)
}

// threadCaps returns the five sets of the calling thread as hexadecimal masks.
func threadCaps(t *testing.T) map[string]string {
	t.Helper()
	sets := make(map[string]string)
	for _, name := range []string{"CapBnd", "CapEff", "CapPrm", "CapInh", "CapAmb"} {
		sets[name] = statusField(t, "thread-self", name)[0]
	}
	return sets
}

func TestCapabilitySets(t *testing.T) {
	need.Root(t)
	const chown, kill, admin = unix.CAP_CHOWN, unix.CAP_KILL, unix.CAP_SYS_ADMIN
	none := bit()
	for _, tt := range []struct {
		name string
		in   *specs.LinuxCapabilities
		keep uint64
		want map[string]string
	}{
		{name: "nil", in: nil},
		{name: "empty", in: &specs.LinuxCapabilities{}},
		{
			name: "all five, in any case",
			in: &specs.LinuxCapabilities{
				Bounding:    []string{"CAP_CHOWN", "cap_kill"},
				Effective:   []string{"CAP_CHOWN"},
				Permitted:   []string{"CAP_CHOWN", "Cap_Kill"},
				Inheritable: []string{"CAP_KILL"},
				Ambient:     []string{"CAP_KILL"},
			},
			want: map[string]string{
				"CapBnd": bit(chown, kill), "CapEff": bit(chown), "CapPrm": bit(chown, kill),
				"CapInh": bit(kill), "CapAmb": bit(kill),
			},
		},
		{
			name: "unknown name",
			in:   &specs.LinuxCapabilities{Bounding: []string{"CAP_NONE", "CHOWN", "CAP_KILL"}, Permitted: []string{"CAP_NONE"}},
			want: map[string]string{"CapBnd": bit(kill)},
		},
		{
			name: "effective is within permitted, ambient within both",
			in: &specs.LinuxCapabilities{
				Bounding:  []string{"CAP_CHOWN", "CAP_KILL"},
				Effective: []string{"CAP_CHOWN", "CAP_KILL"},
				Permitted: []string{"CAP_KILL"},
				Ambient:   []string{"CAP_KILL", "CAP_CHOWN"},
			},
			want: map[string]string{"CapBnd": bit(chown, kill), "CapEff": bit(kill), "CapPrm": bit(kill)},
		},
		{
			// What is permitted lasts until the exec, which looks at the bounding set.
			name: "not in the bounding set",
			in: &specs.LinuxCapabilities{
				Bounding:    []string{"CAP_CHOWN"},
				Effective:   []string{"CAP_CHOWN", "CAP_KILL"},
				Permitted:   []string{"CAP_CHOWN", "CAP_KILL"},
				Inheritable: []string{"CAP_CHOWN", "CAP_KILL"},
				Ambient:     []string{"CAP_CHOWN", "CAP_KILL"},
			},
			want: map[string]string{
				"CapBnd": bit(chown), "CapEff": bit(chown, kill), "CapPrm": bit(chown, kill),
				"CapInh": bit(chown), "CapAmb": bit(chown),
			},
		},
		{
			name: "CAP_SYS_ADMIN for a while",
			in:   &specs.LinuxCapabilities{Bounding: []string{"CAP_CHOWN"}, Permitted: []string{"CAP_CHOWN"}},
			keep: 1 << unix.CAP_SYS_ADMIN,
			want: map[string]string{"CapBnd": bit(chown), "CapEff": bit(admin), "CapPrm": bit(chown, admin)},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			before := threadCaps(t)
			onThread(t, func() error {
				sets := NewCapabilitySets(tt.in)
				if err := errors.Join(sets.DropBounding(), sets.Apply(tt.keep)); err != nil {
					return err
				}
				got := threadCaps(t)
				for name, mask := range got {
					want, ok := tt.want[name]
					if !ok {
						want = none
					}
					wantEqual(t, name, mask, want)
				}
				if tt.keep == 0 {
					return nil
				}
				if err := sets.Apply(0); err != nil {
					return err
				}
				wantEqual(t, "CapEff at last", threadCaps(t)["CapEff"], none)
				wantEqual(t, "CapPrm at last", threadCaps(t)["CapPrm"], bit(chown))
				return nil
			})
			wantEqual(t, "other threads", threadCaps(t), before)
		})
	}
}

// TestCapabilitySetsHeld asks for what the thread does not have any more.
func TestCapabilitySetsHeld(t *testing.T) {
	need.Root(t)
	onThread(t, func() error {
		few := NewCapabilitySets(&specs.LinuxCapabilities{
			Bounding:  []string{"CAP_CHOWN", "CAP_KILL"},
			Permitted: []string{"CAP_CHOWN"}, Effective: []string{"CAP_CHOWN"},
		})
		both := []string{"CAP_CHOWN", "CAP_KILL"}
		more := NewCapabilitySets(&specs.LinuxCapabilities{
			Bounding: both, Permitted: both, Effective: both, Inheritable: both, Ambient: both,
		})
		if err := errors.Join(few.DropBounding(), few.Apply(0), more.Apply(0)); err != nil {
			return err
		}
		for _, name := range []string{"CapEff", "CapPrm", "CapInh", "CapAmb"} {
			wantEqual(t, name, threadCaps(t)[name], bit(unix.CAP_CHOWN))
		}
		// The bounding set can't be lowered without CAP_SETPCAP.
		wantErrno(t, NewCapabilitySets(nil).DropBounding(), unix.EPERM)
		// What is ambient lasts through an exec, without it nothing does.
		if err := SetUID(65534); err != nil {
			wantErrno(t, err, unix.EPERM) // CAP_SETUID is gone too
		}
		out, err := exec.Command("grep", "CapEff", "/proc/self/status").Output()
		wantEqual(t, "a program's, error", fmt.Sprintf("%s%v", out, err), "CapEff:\t"+bit(unix.CAP_CHOWN, unix.CAP_KILL)+"\n<nil>")
		return nil
	})
}

// TestIDs needs the ids of one thread to change, and of no other.
func TestIDs(t *testing.T) {
	need.Root(t)
	fields := func() (all string) {
		for _, name := range []string{"Uid", "Gid", "Groups"} {
			all += fmt.Sprint(name, statusField(t, "thread-self", name), " ")
		}
		return all
	}
	before := fields()
	onThread(t, func() error {
		err := errors.Join(SetGroups([]uint32{7, 8}), SetGID(1234), SetUID(4321))
		wantEqual(t, "ids", fields(), "Uid[4321 4321 4321 4321] Gid[1234 1234 1234 1234] Groups[7 8] ")
		wantErrno(t, SetUID(0), unix.EPERM)
		wantErrno(t, SetGID(0), unix.EPERM)
		wantErrno(t, SetGroups(nil), unix.EPERM)
		return err
	})
	onThread(t, func() error {
		err := SetEffectiveUID(4321)
		wantEqual(t, "ids", fmt.Sprint(statusField(t, "thread-self", "Uid")), "[0 4321 0 4321]")
		err = errors.Join(err, SetUID(4321))
		wantEqual(t, "ids", fmt.Sprint(statusField(t, "thread-self", "Uid")), "[4321 4321 4321 4321]")
		return err
	})
	onThread(t, func() error {
		err := errors.Join(SetGroups([]uint32{7}), SetGroups(nil))
		wantEqual(t, "no groups", fmt.Sprint(statusField(t, "thread-self", "Groups")), "[]")
		wantErrno(t, SetGroups(make([]uint32, 1<<16+1)), unix.EINVAL)
		return err
	})
	wantEqual(t, "other threads", fields(), before)
	wantEqual(t, "this process", os.Getuid(), 0)
}
