package integration

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestFieldCompletion asks bash for completions as it does at a prompt.
func TestFieldCompletion(t *testing.T) {
	t.Parallel()
	l := newLab(t, eggrunOnly(t))
	need(t, "bash", func() error {
		_, err := exec.LookPath("bash")
		return err
	})
	c := l.create(sh("exit 0"))
	makeDir(t, filepath.Join(l.dir, "egg-bundle"))
	complete := func(line string) []string {
		t.Helper()
		const script = `source ../contrib/eggrun.bash; COMP_LINE=$1 COMP_POINT=${#1}; _eggrun; printf '%s\n' "${COMPREPLY[@]}"`
		cmd := exec.Command("bash", "-uc", script, "bash", l.rt.path+" "+line)
		cmd.Env = append(os.Environ(), "XDG_RUNTIME_DIR=")
		var out, stderr strings.Builder
		cmd.Stdout, cmd.Stderr = &out, &stderr
		if err := suite.reaper.start(cmd); err != nil {
			t.Fatal(err)
		}
		if err := suite.reaper.wait(cmd); err != nil || stderr.String() != "" {
			t.Fatalf("%s: %v: %s", line, err, stderr.String())
		}
		return strings.Fields(out.String())
	}
	for _, test := range []struct {
		line string
		want []string
	}{
		{"st", []string{"start", "state"}},
		{"--no-such", nil},
		{"--log-", []string{"--log-format"}},
		{"--log-format ", []string{"text", "json"}},
		{"--log-format=j", []string{"json"}},
		{"--rootless true create --no", []string{"--no-new-keyring", "--no-pivot"}},
		{"create --bundle " + l.dir + "/egg", []string{l.dir + "/egg-bundle"}},
		{"create ", nil},
		{"policy ", []string{"check", "explain"}},
		{"policy e", []string{"explain"}},
		{"policy explain --eg", []string{"--egress-profile"}},
		{"policy check " + l.dir + "/egg", []string{l.dir + "/egg-bundle"}},
		{"--root " + l.root + " policy explain ", []string{c.id}},
		{"--root " + l.root + " start ", []string{c.id}},
		{"--root=" + l.root + " delete --force c", []string{c.id}},
		{"--root " + l.root + " delete --f", []string{"--force"}},
		{"--root " + l.root + " start x", nil},
	} {
		if got := complete(test.line); !slices.Equal(got, test.want) {
			t.Errorf("%q: got %q, want %q", test.line, got, test.want)
		}
	}
	if got := complete(""); !slices.Contains(got, "create") || !slices.Contains(got, "features") {
		t.Errorf("verbs: got %q", got)
	}
	c.delete()
}
