package egress

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"eggrun/sandbox"
	"eggrun/spec"
)

func TestPolicyGap(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "etc/eggrun/policy.toml")
	for _, path := range []string{"etc/eggrun/other", "else"} {
		if err := os.MkdirAll(filepath.Join(dir, path), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("etc", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	gapOf := func(source string, readOnly bool) string {
		t.Helper()
		gap, err := policyGap(file, []spec.Mount{{Mount: sandbox.Mount{Source: source, Target: "/x", ReadOnly: readOnly}}})
		if err != nil {
			t.Fatal(err)
		}
		return gap
	}
	if gap := gapOf(filepath.Join(dir, "etc"), false); gap != "" {
		t.Errorf("without the file: %s", gap)
	}
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for source, want := range map[string]bool{
		file: true, filepath.Join(dir, "etc/eggrun"): true, filepath.Join(dir, "etc"): true, dir: true, "/": true,
		filepath.Join(dir, "link"): true, filepath.Join(dir, "link/eggrun/policy.toml"): true, "/proc/self/root" + dir: true,
		filepath.Join(dir, "else"): false, filepath.Join(dir, "etc/eggrun/other"): false,
	} {
		if gap := gapOf(source, false); (gap != "") != want || want && !strings.Contains(gap, "lets the container write") {
			t.Errorf("%s: gap %q, want one: %v", source, gap, want)
		}
		if gap := gapOf(source, true); gap != "" {
			t.Errorf("%s, read-only: gap %q", source, gap)
		}
	}
}

func TestWritablePolicies(t *testing.T) {
	t.Parallel()
	getenv := func(name string) string { return map[string]string{"HOME": "/home/u"}[name] }
	const own = "/home/u/.config/eggrun/policy.toml"
	for _, tt := range []struct {
		viewer viewer
		want   string
	}{
		{viewer{}, adminPolicy},
		{viewer{own: 1000, outer: 1000}, adminPolicy + " " + own},
		{viewer{outer: 1000, root: 65534, overflow: true}, own},
	} {
		if got := strings.Join(tt.viewer.writablePolicies(getenv), " "); got != tt.want {
			t.Errorf("%+v: %q, want %q", tt.viewer, got, tt.want)
		}
	}
}
