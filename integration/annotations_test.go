package integration

import (
	"slices"
	"strings"
	"syscall"
	"testing"
)

// TestKeepGroups: with crun's annotation, which podman sets for keep-groups, the
// groups of the caller stay, and not those of config.json.
func TestKeepGroups(t *testing.T) {
	t.Parallel()
	l := newLab(t, eggrunOnly(t))
	keep := annotate("run.oci.keep_original_groups", "1")
	for _, tt := range []struct {
		name  string
		edits []edit
		want  string
	}{
		{"without", nil, "0"},
		{"with", []edit{keep}, "0 4242"},
		{"groups of config.json", []edit{asUser(0, 0, 7)}, "0 7"},
		{"both", []edit{asUser(0, 0, 7), keep}, "0 4242"},
		{"user namespace", []edit{withUserNamespace}, "0"},
		{"user namespace with", []edit{withUserNamespace, keep}, "0 65534"}, // one that is not mapped
	} {
		id := l.newID()
		b := l.bundle(id, append([]edit{sh("id -G")}, tt.edits...)...)
		cmd, r, log := l.command(invocation{args: []string{"run", "--bundle", b.dir, id}})
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Groups: []uint32{extraGroup}}}
		if err := suite.reaper.start(cmd); err != nil {
			t.Fatal(err)
		}
		r = l.finish(cmd, r, log)
		got := strings.Fields(r.stdout)
		slices.Sort(got)
		equal(t, tt.name+" ("+r.stderr+")", strings.Join(got, " "), tt.want)
	}
}

// TestAnnotationsRefused are values that mean nothing.
func TestAnnotationsRefused(t *testing.T) {
	t.Parallel()
	l := newLab(t, eggrunOnly(t))
	for key, value := range map[string]string{
		"run.oci.mount_context_type": "uid=0",
		"run.oci.systemd.subgroup":   "../other",
		"run.oci.delegate-cgroup":    "alone",
	} {
		id := l.newID()
		b := l.bundle(id, sh("exit 0"), annotate(key, value))
		l.wantFail(l.call("create", "--bundle", b.dir, id), "annotations."+key)
		l.wantGone(id)
	}
}
