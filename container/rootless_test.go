package container

import (
	"fmt"
	"testing"

	"github.com/moby/sys/user"
	"github.com/opencontainers/runtime-spec/specs-go"
)

func TestInOwnIDs(t *testing.T) {
	t.Parallel()
	own := []user.IDMap{{ID: 0, ParentID: 1000, Count: 1}, {ID: 1, ParentID: 100000, Count: 65536}, {ID: 65537, ParentID: 300000, Count: 10}}
	type ids = specs.LinuxIDMapping
	for _, tt := range []struct {
		in   []ids
		want string
	}{
		{nil, "[] <nil>"},
		{[]ids{{ContainerID: 0, HostID: 1000, Size: 1}}, "[{0 0 1}] <nil>"},
		{[]ids{{ContainerID: 0, HostID: 1000, Size: 1}, {ContainerID: 1, HostID: 100000, Size: 65536}}, "[{0 0 1} {1 1 65536}] <nil>"},
		{[]ids{{ContainerID: 7, HostID: 100005, Size: 3}}, "[{7 6 3}] <nil>"},
		{[]ids{{ContainerID: 0, HostID: 300009, Size: 1}}, "[{0 65546 1}] <nil>"},
		{[]ids{{ContainerID: 0, HostID: 1000, Size: 2}}, "[] user namespace: host id 1001 is not the caller's; see /etc/subuid and /etc/subgid"},
		{[]ids{{ContainerID: 0, HostID: 165535, Size: 2}}, "[] user namespace: host id 165536 is not the caller's; see /etc/subuid and /etc/subgid"},
		{[]ids{{ContainerID: 0, HostID: 0, Size: 1}}, "[] user namespace: host id 0 is not the caller's; see /etc/subuid and /etc/subgid"},
	} {
		got, err := inOwnIDs(tt.in, own)
		if text := fmt.Sprint(got, " ", err); text != tt.want {
			t.Errorf("inOwnIDs(%v) = %s, want %s", tt.in, text, tt.want)
		}
	}
	// Two ranges of the caller's that follow each other.
	joined := []user.IDMap{{ID: 0, ParentID: 1000, Count: 1}, {ID: 1, ParentID: 1001, Count: 9}}
	got, err := inOwnIDs([]ids{{ContainerID: 0, HostID: 1000, Size: 10}}, joined)
	if text := fmt.Sprint(got, err); text != "[{0 0 1} {1 1 9}] <nil>" {
		t.Errorf("over two ranges: %s", text)
	}
}
