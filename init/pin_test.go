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

// TestAncestorsCannotBeReplaced is the seed's fault that the directory above a
// covered file could be renamed and a new tree put in its place.
func TestAncestorsCannotBeReplaced(t *testing.T) {
	forEachCaller(t, func(t *testing.T, c caller) {
		for _, tt := range []struct{ name, option, attack string }{
			{"deny-write, parent", "--deny-write", "mv a/b/proj a/b/away && mkdir a/b/proj"},
			{"deny-write, further up", "--deny-write", "mv a away && mkdir -p a/b/proj"},
			{"deny", "--deny", "mv a/b a/away && mkdir -p a/b/proj"},
			{"deny-write, after a chmod", "--deny-write", "chmod 755 a && mv a/b a/away && mkdir -p a/b/proj"},
			{"deny, exchanged", "--deny", "mkdir -p a/evil/proj && $0 agent do exchange a/evil a/b"},
		} {
			t.Run(tt.name, func(t *testing.T) {
				t.Parallel()
				tr := newTree(t, c)
				policy := tr.write("work/a/b/proj/egg.yaml", "policy")
				if strings.Contains(tt.attack, "chmod") {
					tr.check(os.Chmod(tr.path("work/a"), 0o555))
				}
				l := sh(c, "exec >/dev/null 2>&1; "+tt.attack+" && echo evil >a/b/proj/egg.yaml; true")
				l.command = append(l.command, selfPath(t))
				l.dir = tr.path("work")
				l.with(tt.option, policy).mustPrint(t, "")
				if got := tr.read("work/a/b/proj/egg.yaml"); got != "policy" {
					t.Errorf("the file now holds %q", got)
				}
				l.mustPrint(t, "")
				if got := tr.read("work/a/b/proj/egg.yaml"); got != "evil\n" {
					t.Errorf("control: the file now holds %q", got)
				}
			})
		}
	})
}

// TestHomeCannotBeReplaced is the same for the read-only home directory.
func TestHomeCannotBeReplaced(t *testing.T) {
	forEachCaller(t, func(t *testing.T, c caller) {
		tr := newTree(t, c)
		tr.write("users/u/.profile", "good")
		home := tr.path("users/u")
		l := sh(c, "exec 2>/dev/null; mv users away && mkdir -p users/u && echo evil >users/u/.profile; true")
		l.dir = tr.dir
		l.with("--home", home).mustPrint(t, "")
		if got := tr.read("users/u/.profile"); got != "good" {
			t.Errorf("the file now holds %q", got)
		}
		l.mustPrint(t, "")
		if got := tr.read("users/u/.profile"); got != "evil\n" {
			t.Errorf("control: the file now holds %q", got)
		}
	})
}

// TestPinnedDirectoriesWork uses what was pinned.
func TestPinnedDirectoriesWork(t *testing.T) {
	forEachCaller(t, func(t *testing.T, c caller) {
		tr := newTree(t, c)
		hook := tr.write("work/.git/hooks/pre", "hook")
		tr.write("work/.git/config", "config")
		l := sh(c, `set -e; cd .git; cat config hooks/pre; echo x >index.lock; mv index.lock index; rm config; mkdir objects; cd ..; mv plain moved; pwd`,
			"--deny-write", filepath.Dir(hook))
		l.dir = tr.path("work")
		tr.mkdir("work/plain")
		l.mustPrint(t, "confighook"+l.dir+"\n")
		if !tr.exists("work/.git/index") || !tr.exists("work/moved") || tr.exists("work/.git/config") {
			t.Error("something was not done")
		}
	})
}

// TestReplaceableLink is about links on the way to a denied path.
func TestReplaceableLink(t *testing.T) {
	forEachCaller(t, func(t *testing.T, c caller) {
		tr := newTree(t, c)
		tr.write("real/proj/egg.yaml", "policy")
		link := tr.link(tr.path("real"), "link")
		tr.mkdir("home/d")
		indirect := tr.link("../../link/proj", "home/d/indirect")
		for _, path := range []string{link, link + "/proj/egg.yaml", indirect, indirect + "/egg.yaml"} {
			for _, option := range []string{"--deny", "--deny-write"} {
				l := sh(c, "rm "+link+" && mkdir -p "+link+"/proj && echo evil >"+link+"/proj/egg.yaml", "--home", tr.home)
				l.with(append(l.options, option, path)...).mustRefuse(t, fmt.Sprintf(
					"cannot enforce %s %q: the program could replace the link %q on the way; name what it leads to", option, path, link))
			}
		}
		sh(c, "rm "+link+" && mkdir -p "+link+"/proj && echo evil >"+link+"/proj/egg.yaml && cat "+indirect+"/egg.yaml",
			"--home", tr.home).mustPrint(t, "evil\n")

		// Nobody could replace this one; what it leads to is denied.
		tr.check(os.RemoveAll(link))
		inHome := tr.link(tr.path("real/proj"), "home/inhome")
		sh(c, "cat "+inHome+"/egg.yaml "+tr.path("real/proj/egg.yaml")+" 2>/dev/null", "--home", tr.home,
			"--deny", inHome+"/egg.yaml").mustPrint(t, "")
	})
}

// TestLinkOfTheSystem is denied through a link of root's directory.
func TestLinkOfTheSystem(t *testing.T) {
	t.Parallel()
	for _, c := range []caller{realRoot(), nsUser()} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.need(t)
			need.Root(t)
			tr := newTree(t, caller{fileUID: 0})
			secret := tr.write("run/secret", "secret")
			tr.link("run", "varrun")
			l := sh(c, "exec 2>/dev/null; cat "+secret+" "+tr.path("varrun/secret")+"; true")
			l.mustPrint(t, "secretsecret")
			l.with("--deny", tr.path("varrun/secret")).mustPrint(t, "")
		})
	}
}

// TestOwnerAct takes rights to files and gives them back.
func TestOwnerAct(t *testing.T) {
	t.Parallel()
	need.Root(t)
	dir := t.TempDir()
	try := func() error { return os.WriteFile(filepath.Join(dir, "file"), nil, 0o600) }
	result := make(chan [3]error)
	starting.Lock() // the process is not dumpable afterwards
	defer starting.Unlock()
	go func() {
		runtime.LockOSThread() // ends with this goroutine
		o := owner{uid: 12345, gid: 12345}
		before, during := try(), o.act(try)
		result <- [3]error{before, during, try()}
	}()
	got := <-result
	if got[0] != nil || !errors.Is(got[1], unix.EACCES) || got[2] != nil {
		t.Errorf("before, during and after: %v, want only EACCES in between", got)
	}
}
