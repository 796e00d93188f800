package initproc

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"eggrun/internal/need"

	"golang.org/x/sys/unix"
)

// TestDenyMissing is about paths that are not there: the seed made the one in a
// writable place on the host and skipped the other.
func TestDenyMissing(t *testing.T) {
	forEachCaller(t, func(t *testing.T, c caller) {
		tr := newTree(t, c)
		work := tr.mkdir("home/work")
		inHome := []string{"--home", tr.home, "--writable", work}
		for _, option := range []string{"--deny", "--deny-write"} {
			for _, path := range []string{work + "/egg.yaml", work + "/a/b/egg.yaml"} {
				l := sh(c, "mkdir -p "+filepath.Dir(path)+" && echo evil >"+path, append(inHome, option, path)...)
				l.mustRefuse(t, fmt.Sprintf(
					"cannot enforce %s %q: it does not exist and the program could make it in %q; make it first", option, path, work))
				if entries, err := os.ReadDir(work); err != nil || len(entries) > 0 {
					t.Errorf("%s %s: left %v, %v in the directory", option, path, entries, err)
				}
			}
			l := sh(c, "exec 2>/dev/null; mkdir -p "+tr.home+"/.ssh/a; echo evil >"+tr.home+"/.ssh/a/b; echo started",
				append(inHome, option, tr.home+"/.ssh/a/b")...)
			l.mustPrint(t, "started\n")
			if tr.exists("home/.ssh") {
				t.Errorf("%s: the missing path was made", option)
			}
		}
		sh(c, "echo made >"+work+"/egg.yaml && cat "+work+"/egg.yaml", inHome...).mustPrint(t, "made\n")
		sh(c, "mkdir -p "+tr.home+"/.ssh").mustPrint(t, "")
		if !tr.exists("home/.ssh") {
			t.Error("control: without --home the path could not be made")
		}
	})
}

// TestDenyMissingElsewhere is about missing paths that can be made by another
// name than the denied one.
func TestDenyMissingElsewhere(t *testing.T) {
	forEachCaller(t, func(t *testing.T, c caller) {
		tr := newTree(t, c)
		target := tr.path("target")
		link := tr.link(target, "home/egg.yaml")
		attack := "echo evil >" + target + " && cat " + link
		sh(c, attack, "--home", tr.home, "--deny-write", link).mustRefuse(t, fmt.Sprintf(
			"cannot enforce --deny-write %q: the link %q leads to nothing, which the program could make; name what it should lead to", link, link))
		sh(c, attack, "--home", tr.home).mustPrint(t, "evil\n")

		need.Root(t)
		open := tr.mkdir("open")
		shut := tr.mkdir("shut")
		l := sh(c, "echo evil >"+open+"/x && cat "+shut+"/x")
		l.prepare = func() error { return bindReadOnly(open, shut) }
		l.with("--deny", shut+"/x").mustRefuse(t, fmt.Sprintf(
			"cannot enforce --deny %q: it does not exist and the program could make it in %q; make it first", shut+"/x", open))
		l.mustPrint(t, "evil\n")
	})
}

// TestDenyHardLink is about a file with a second name, which cannot be found.
func TestDenyHardLink(t *testing.T) {
	forEachCaller(t, func(t *testing.T, c caller) {
		tr := newTree(t, c)
		file := tr.write("home/token", "secret")
		tr.check(os.Link(file, tr.path("other")))
		l := sh(c, "cat "+tr.path("other"))
		for _, option := range []string{"--deny", "--deny-write"} {
			l.with(option, file).mustRefuse(t, fmt.Sprintf(
				"cannot enforce %s %q: it has 2 names (hard links), of which only one is known; remove the others", option, file))
		}
		l.mustPrint(t, "secret")
	})
}

// TestSeveralGaps are all told at once.
func TestSeveralGaps(t *testing.T) {
	t.Parallel()
	c := nsUser()
	c.need(t)
	tr := newTree(t, c)
	got := sh(c, "echo started", "--deny", tr.path("a"), "--deny", tr.path("b")).run(t)
	if got.status != exitSetup || !strings.Contains(got.stderr, tr.path("a")) || !strings.Contains(got.stderr, tr.path("b")) {
		t.Errorf("got %+v, want both paths", got)
	}
}

// TestAlias is about what is visible at a second path through another mount:
// the denied directory itself, one above it, one in it, and a single file.
func TestAlias(t *testing.T) {
	forEachCaller(t, func(t *testing.T, c caller) {
		need.Root(t)
		tr := newTree(t, c)
		tr.write("home/.ssh/keys/id", "secret\n")
		tr.write("home/token", "secret\n")
		ssh, token := tr.path("home/.ssh"), tr.path("home/token")
		same, above, part, file := tr.mkdir("same"), tr.mkdir("above"), tr.mkdir("part"), tr.write("file", "")
		hidden := tr.mkdir("hidden/mnt")
		tr.write("cover/mnt/keys/id", "harmless\n")
		attacks := []string{same + "/keys/id", above + "/.ssh/keys/id", part + "/id", file}
		l := sh(c, "exec 2>/dev/null; cat "+strings.Join(attacks, " ")+" "+hidden+"/keys/id; true")
		l.prepare = func() error {
			for _, m := range [][2]string{
				{ssh, same}, {tr.home, above}, {ssh + "/keys", part}, {token, file},
				// One that another mount hides: what lies there is not denied.
				{ssh, hidden}, {tr.path("cover"), tr.path("hidden")},
			} {
				if err := bind(m[0], m[1]); err != nil {
					return err
				}
			}
			return nil
		}
		l.mustPrint(t, strings.Repeat("secret\n", 4)+"harmless\n")
		l.with("--deny", ssh, "--deny", token).mustPrint(t, "harmless\n")

		change := sh(c, "exec 2>/dev/null; for f in "+strings.Join(attacks, " ")+"; do echo evil >$f; done; true")
		change.prepare = l.prepare
		change.with("--deny-write", ssh, "--deny-write", token).mustPrint(t, "")
		change.with("--home", tr.home).mustPrint(t, "")
		if got := tr.read("home/token") + tr.read("home/.ssh/keys/id"); got != "secret\nsecret\n" {
			t.Errorf("the files now hold %q", got)
		}
		change.mustPrint(t, "")
		if got := tr.read("home/token") + tr.read("home/.ssh/keys/id"); got != "evil\nevil\n" {
			t.Errorf("control: the files now hold %q", got)
		}
	})
}

// TestLateAlias mounts one outside when the command is running already.
func TestLateAlias(t *testing.T) {
	t.Parallel()
	c := realRoot()
	c.need(t)
	tr := newTree(t, c)
	ssh := filepath.Dir(tr.write("home/.ssh/id", "secret"))
	late := tr.mkdir("late")
	for _, tt := range []struct {
		bare bool
		want string
	}{{true, "ok"}, {false, "ENOENT"}} {
		var mountNS *os.File
		l := launch{caller: c, options: []string{"--deny", ssh}, bare: tt.bare}
		l.prepare = func() (err error) {
			// What is mounted there reaches every namespace that is made from
			// this one, unless it refuses.
			err = errors.Join(bind(tr.dir, tr.dir), unix.Mount("", tr.dir, "", unix.MS_SHARED, ""))
			if err == nil {
				mountNS, err = os.Open("/proc/thread-self/ns/mnt")
			}
			return err
		}
		a := l.serve(t)
		defer mountNS.Close()
		if got := a.ask("read " + late + "/id"); got != "ENOENT" {
			t.Errorf("before the mount: %s", got)
		}
		if err := bindIn(mountNS, ssh, late); err != nil {
			t.Fatal(err)
		}
		if got := a.ask("read " + late + "/id"); got != tt.want {
			t.Errorf("after the mount, wrapper %v: %s, want %s", !tt.bare, got, tt.want)
		}
	}
}

// bindIn makes a bind mount in another mount namespace, by a thread that is not
// used again.
func bindIn(mountNS *os.File, from, to string) error {
	result := make(chan error)
	go func() {
		runtime.LockOSThread()
		err := errors.Join(unix.Unshare(unix.CLONE_FS), unix.Setns(int(mountNS.Fd()), unix.CLONE_NEWNS))
		if err == nil {
			err = bind(from, to)
		}
		result <- err
	}()
	return <-result
}

func bindReadOnly(from, to string) error {
	return errors.Join(bind(from, to), unix.Mount("", to, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, ""))
}

// TestAliasOddName has what mountinfo writes in octal.
func TestAliasOddName(t *testing.T) {
	forEachCaller(t, func(t *testing.T, c caller) {
		need.Root(t)
		tr := newTree(t, c)
		secret := tr.write("home/a b/secret", "secret")
		alias := tr.mkdir("c \t\\040\nd")
		l := launch{caller: c, command: []string{selfPath(t), asAgent, "do", "read", alias + "/secret"}}
		l.prepare = func() error { return bind(filepath.Dir(secret), alias) }
		l.mustPrint(t, "ok\n")
		l.with("--deny", filepath.Dir(secret)).mustPrint(t, "ENOENT\n")
	})
}

// TestAliasOutOfReach is where the command cannot go: no reason to refuse.
func TestAliasOutOfReach(t *testing.T) {
	t.Parallel()
	c := nsUser()
	c.need(t)
	need.Root(t)
	tr := newTree(t, c)
	secret := tr.write("home/secret", "secret")
	roots := newTree(t, caller{fileUID: 0})
	alias := roots.mkdir("private/alias")
	tr.check(os.Chmod(roots.path("private"), 0o700))
	l := sh(c, "cat "+alias+"/secret 2>/dev/null; cat "+secret+" 2>/dev/null; echo started", "--deny", tr.home)
	l.prepare = func() error { return bind(tr.home, alias) }
	l.mustPrint(t, "started\n")
	tr.check(os.Chmod(roots.path("private"), 0o755))
	l.mustPrint(t, "started\n")
	l.with().mustPrint(t, "secretsecretstarted\n")
}

func TestPlaceCheck(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	open := func() *os.File {
		f, err := os.OpenFile(file, os.O_CREATE|os.O_RDONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	first := open()
	x, err := mountStat(first)
	if err != nil {
		t.Fatal(err)
	}
	p := newPlace(file, &x)
	if err := p.check(open()); err != nil {
		t.Errorf("the same file: %v", err)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	const want = "it was replaced while the sandbox was set up"
	if err := p.check(open()); errorText(err) != want {
		t.Errorf("another file: %v, want %q", err, want)
	}
	if err := (&place{path: file, missing: true}).check(first); errorText(err) != want {
		t.Errorf("a file where none was: %v, want %q", err, want)
	}
}
