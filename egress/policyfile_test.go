package egress

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/moby/sys/user"
)

func TestViewer(t *testing.T) {
	t.Parallel()
	const overflow = 65534
	host := []user.IDMap{{ID: 0, ParentID: 0, Count: 4294967295}}
	rootless := []user.IDMap{{ID: 0, ParentID: 1000, Count: 1}, {ID: 1, ParentID: 100000, Count: 65536}}
	for _, tt := range []struct {
		name string
		own  uint32
		uids []user.IDMap
		want viewer
	}{
		{"root", 0, host, viewer{own: 0, outer: 0, root: 0}},
		{"a user", 1000, host, viewer{own: 1000, outer: 1000, root: 0}},
		{"rootless", 0, rootless, viewer{own: 0, outer: 1000, root: overflow, overflow: true}},
		{"rootless, another id", 5, rootless, viewer{own: 5, outer: 100004, root: overflow, overflow: true}},
		{"root in the middle", 7, []user.IDMap{{ID: 7, ParentID: 0, Count: 1}}, viewer{own: 7, outer: 0, root: 7}},
		{"no id", 3, nil, viewer{own: 3, outer: overflow, root: overflow, overflow: true}},
	} {
		if got := newViewer(tt.own, overflow, tt.uids); got != tt.want {
			t.Errorf("%s: %+v, want %+v", tt.name, got, tt.want)
		}
	}
}

func TestUserPolicyPath(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ xdg, home, want string }{
		{"", "", ""},
		{"", "/home/u", "/home/u/.config/eggrun/policy.toml"},
		{"/x", "/home/u", "/x/eggrun/policy.toml"},
		{"x", "/home/u", "/home/u/.config/eggrun/policy.toml"},
		{"", "home", ""},
	} {
		getenv := func(name string) string { return map[string]string{"XDG_CONFIG_HOME": tt.xdg, "HOME": tt.home}[name] }
		if got := userPolicy(getenv); got != tt.want {
			t.Errorf("XDG_CONFIG_HOME=%q HOME=%q: %q, want %q", tt.xdg, tt.home, got, tt.want)
		}
	}
}

// tree makes directories below one in which root and the tester alone can write,
// which the temporary directory is not.
func tree(t *testing.T) string {
	t.Helper()
	home, err := os.UserHomeDir()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp(home, ".eggrun-policy-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if err := os.MkdirAll(filepath.Join(dir, "etc/eggrun"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

const somePolicy = "[default]\ndomains = [\"a.test\"]\n"

func TestReadPolicy(t *testing.T) {
	t.Parallel()
	me := uint32(os.Geteuid())
	owner := viewer{own: me, outer: me, root: me}
	stranger := viewer{own: me + 1, outer: me + 1, root: me + 1}
	for _, tt := range []struct {
		name    string
		viewer  viewer
		own     bool
		change  func(t *testing.T, dir, file string) error
		want    bool
		wantErr string
	}{
		{name: "good", viewer: owner, want: true},
		{name: "none", viewer: owner, change: func(_ *testing.T, _, file string) error { return os.Remove(file) }},
		{name: "no directory", viewer: owner, change: func(_ *testing.T, dir, _ string) error { return os.RemoveAll(filepath.Join(dir, "etc")) }},
		{name: "none, and a bad directory", viewer: owner, change: func(_ *testing.T, dir, file string) error {
			return errors.Join(os.Remove(file), os.Chmod(filepath.Join(dir, "etc"), 0o777))
		}},
		{name: "none behind a link", viewer: owner, change: func(_ *testing.T, dir, _ string) error {
			return errors.Join(os.RemoveAll(filepath.Join(dir, "etc")), os.Symlink("nowhere", filepath.Join(dir, "etc")))
		}},
		{name: "a file for a directory", viewer: owner, change: func(_ *testing.T, dir, _ string) error {
			return errors.Join(os.RemoveAll(filepath.Join(dir, "etc/eggrun")), os.WriteFile(filepath.Join(dir, "etc/eggrun"), nil, 0o644))
		}},
		{name: "of a stranger", viewer: stranger, wantErr: `belongs to uid`},
		{name: "of a stranger, though one's own would do", viewer: stranger, own: true, wantErr: `; give it to root or to yourself`},
		{name: "one's own", viewer: viewer{own: me, outer: 1000, root: me + 1}, own: true, want: true},
		{name: "the caller's where it must be root's", viewer: viewer{own: me, outer: 1000, root: me + 1}, wantErr: `; give it to root`},
		{name: "root's in a user namespace, but the caller writes", viewer: viewer{own: me + 1, outer: 1000, root: me, overflow: true}, wantErr: `can be written to by the caller, whom it is to bind`},
		{name: "group writes the file", viewer: owner, change: func(_ *testing.T, _, file string) error { return os.Chmod(file, 0o664) },
			wantErr: `policy.toml" can be written to by others than its owner; take that away with chmod go-w`},
		{name: "all write the directory", viewer: owner, change: func(_ *testing.T, dir, _ string) error { return os.Chmod(filepath.Join(dir, "etc"), 0o1777) },
			wantErr: `etc" can be written to by others than its owner`},
		{name: "link for the file", viewer: owner, change: func(_ *testing.T, dir, file string) error {
			return errors.Join(os.Rename(file, filepath.Join(dir, "real")), os.Symlink(filepath.Join(dir, "real"), file))
		}, wantErr: `policy.toml" is a link; put the file itself there`},
		{name: "link for a directory", viewer: owner, change: func(_ *testing.T, dir, _ string) error {
			return errors.Join(os.Rename(filepath.Join(dir, "etc"), filepath.Join(dir, "real")), os.Symlink("real", filepath.Join(dir, "etc")))
		}, wantErr: `etc" is a link; put the file itself there`},
		{name: "directory for the file", viewer: owner, change: func(_ *testing.T, _, file string) error {
			return errors.Join(os.Remove(file), os.Mkdir(file, 0o755))
		}, wantErr: `is a directory`},
		{name: "bad file", viewer: owner, change: func(_ *testing.T, _, file string) error {
			return os.WriteFile(file, []byte("[default]\nalow = []\n"), 0o644)
		}, wantErr: `policy.toml:2: key "alow": unknown`},
		{name: "large file", viewer: owner, change: func(_ *testing.T, _, file string) error {
			return os.WriteFile(file, []byte(strings.Repeat("#", maxPolicy+1)), 0o644)
		}, wantErr: `larger than 1048576 bytes`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := tree(t)
			file := filepath.Join(dir, "etc/eggrun/policy.toml")
			if err := os.WriteFile(file, []byte(somePolicy), 0o644); err != nil {
				t.Fatal(err)
			}
			if tt.change != nil {
				if err := tt.change(t, dir, file); err != nil {
					t.Fatal(err)
				}
			}
			got, err := tt.viewer.readPolicy(file, tt.own)
			if tt.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), tt.wantErr) {
					t.Fatalf("readPolicy = %v, %v, want the error %q", got, err, tt.wantErr)
				}
				return
			}
			if err != nil || (got != nil) != tt.want {
				t.Fatalf("readPolicy = %v, %v, want a file: %v", got, err, tt.want)
			}
		})
	}
}
