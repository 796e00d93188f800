package check

import (
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

func TestParseVersion(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][2]int{
		"podman version 4.3.1": {4, 3}, "Docker version 20.10.24+dfsg1, build 297e128": {20, 10}, "6.18.44-fc": {6, 18},
		"containerd github.com/containerd/containerd v2.2.9 1a2b": {2, 2}, "crio version 1.36-dev": {1, 36}, "": {}, "unknown": {},
	} {
		if major, minor := parseVersion(text); [2]int{major, minor} != want {
			t.Errorf("%q: got %d.%d, want %v", text, major, minor, want)
		}
	}
	for text, want := range map[string]bool{"4.9": true, "5.0": true, "5.1": false, "5.10": false, "6.0": false, "": false} {
		if got := older(text, 5, 1); got != want {
			t.Errorf("%q older than 5.1: %v", text, got)
		}
	}
}

func TestKernelVersion(t *testing.T) {
	t.Parallel()
	want(t, kernelVersion("5.12.0"), OK, "5.12.0", "")
	want(t, kernelVersion("5.11.22-generic"), Bad, "5.11.22", "5.12")
	want(t, kernelVersion("4.18.0-553.el8"), Bad, "4.18", "5.12")
}

func TestSeccompActions(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		text            string
		filters, agents Status
	}{
		{"kill_process kill_thread trap errno user_notif trace log allow", OK, OK},
		{"kill_process kill_thread trap errno trace log allow", OK, Missing},
		{"", Bad, OK},
	} {
		results := seccompActions(tt.text)
		if results[0].Status != tt.filters || results[1].Status != tt.agents {
			t.Errorf("%q: %+v", tt.text, results)
		}
	}
}

// TestUserNamespace finds the reason for which the kernel refuses one.
func TestUserNamespace(t *testing.T) {
	t.Parallel()
	refused := &os.PathError{Op: "fork/exec", Path: "/opt/eggrun", Err: unix.EPERM}
	for _, tt := range []struct {
		sysctl, value string
		cause, fix    string
	}{
		{"user/max_user_namespaces", "0\n", "the sysctl user.max_user_namespaces is 0", "sysctl -w user.max_user_namespaces=15000"},
		{"kernel/unprivileged_userns_clone", "0\n", "kernel.unprivileged_userns_clone is 0", "sysctl -w kernel.unprivileged_userns_clone=1"},
		{"kernel/apparmor_restrict_unprivileged_userns", "1\n", "kernel.apparmor_restrict_unprivileged_userns is 1", "profile eggrun /opt/eggrun "},
		{"user/max_user_namespaces", "63345\n", "operation not permitted", "seccomp profile"},
	} {
		c := onHost(map[string]string{"/proc/sys/" + tt.sysctl: tt.value}, nil)
		want(t, c.userNamespace(refused), Bad, tt.cause, tt.fix)
		c.privileged = true
		want(t, c.userNamespace(refused), Missing, tt.cause, tt.fix)
		want(t, c.userNamespace(nil), OK, "", "")
	}
}

func TestJudgeTries(t *testing.T) {
	t.Parallel()
	outcomes := map[string]outcome{}
	for _, try := range tries() {
		outcomes[try.name] = outcome{Detail: "fine"}
	}
	for _, r := range judgeTries(outcomes) {
		want(t, r, OK, "fine", "")
	}
	for _, try := range tries() {
		failed := map[string]outcome{try.name: {Err: unix.ENOSYS.Error()}}
		status := Bad
		if try.without != "" {
			status = Missing
		}
		for _, r := range judgeTries(failed) {
			if r.Name == try.name {
				want(t, r, status, unix.ENOSYS.Error(), try.fix)
			} else if r.Status == OK {
				t.Errorf("%+v: it was not tried", r)
			}
		}
	}
}

// TestIn runs on a thread of its own: what is done there stays there.
func TestIn(t *testing.T) {
	t.Parallel()
	wanted := errors.New("wanted")
	detail, err := in(0, func(dir string) (string, error) { return dir, wanted })("here")
	if detail != "here" || !errors.Is(err, wanted) {
		t.Errorf("got %q, %v", detail, err)
	}
	// No process with several threads can do that.
	_, err = in(unix.CLONE_THREAD, func(string) (string, error) { return "", wanted })("")
	if !errors.Is(err, unix.EINVAL) {
		t.Errorf("got %v, want an error of unshare", err)
	}
}
