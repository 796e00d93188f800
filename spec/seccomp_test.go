package spec

import (
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
)

func TestSeccompAgent(t *testing.T) {
	t.Parallel()
	profile := func(path, metadata string, syscalls ...specs.LinuxSyscall) func(*specs.Spec) {
		return func(c *specs.Spec) {
			c.Linux.Seccomp = &specs.LinuxSeccomp{
				DefaultAction: specs.ActAllow, ListenerPath: path, ListenerMetadata: metadata, Syscalls: syscalls,
			}
		}
	}
	byDefault := func(c *specs.Spec) {
		c.Linux.Seccomp = &specs.LinuxSeccomp{DefaultAction: specs.ActNotify, ListenerPath: "/a"}
	}
	calls := func(action specs.LinuxSeccompAction, names ...string) specs.LinuxSyscall {
		return specs.LinuxSyscall{Names: names, Action: action}
	}
	runErrorTests(t, false, []errorTest{
		{"agent", profile("/a", "b", calls(specs.ActErrno, "write"), calls(specs.ActNotify, "mkdir")), ""},
		{"nothing for the agent", profile("a", "b", calls(specs.ActErrno, "write")), ""},
		{"no agent", profile("", "", calls(specs.ActNotify, "mkdir")), `linux.seccomp.listenerPath: must be set for SCMP_ACT_NOTIFY`},
		{"relative path", profile("a", "", calls(specs.ActNotify, "mkdir")), `linux.seccomp.listenerPath "a": must be absolute`},
		{"metadata for nobody", profile("", "b"), `linux.seccomp.listenerMetadata: needs listenerPath`},
		{"by default", byDefault, `linux.seccomp.defaultAction "SCMP_ACT_NOTIFY": must be an action that needs no agent`},
		{
			"write", profile("/a", "", calls(specs.ActErrno, "write"), calls(specs.ActNotify, "mkdir", "write")),
			`linux.seccomp.syscalls[1].names[1] "write": SCMP_ACT_NOTIFY would stop init before the agent is told; use another action`,
		},
	})
}

// What no rule uses is no part of the plan.
func TestSeccompListenerPath(t *testing.T) {
	t.Parallel()
	for action, want := range map[specs.LinuxSeccompAction]string{specs.ActErrno: "", specs.ActNotify: "/a"} {
		config := minimal()
		config.Linux.Seccomp = &specs.LinuxSeccomp{
			DefaultAction: specs.ActAllow, ListenerPath: "/a", ListenerMetadata: "b",
			Syscalls: []specs.LinuxSyscall{{Names: []string{"mkdir"}, Action: action}},
		}
		plan, err := Translate(config, testBundle, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := plan.Seccomp.ListenerPath; got != want {
			t.Errorf("%s: path %q, want %q", action, got, want)
		}
		if config.Linux.Seccomp.ListenerPath != "/a" {
			t.Error("config.json was changed")
		}
	}
}
