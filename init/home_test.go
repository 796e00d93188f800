package initproc

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"eggrun/internal/need"

	"golang.org/x/sys/unix"
)

// writeAll returns a script that writes to each file, directory or new name.
func writeAll(paths ...string) string {
	return "exec 2>/dev/null; for f in " + strings.Join(paths, " ") + "; do if [ -d $f ]; then echo evil >$f/made; else echo evil >$f; fi; done; true"
}

func TestHome(t *testing.T) {
	forEachCaller(t, func(t *testing.T, c caller) {
		tr := newTree(t, c)
		profile := tr.write("home/.profile", "good")
		work := tr.write("home/proj/file", "")
		outside := tr.mkdir("outside")
		l := sh(c, "cat "+profile+"; "+writeAll(profile, tr.home, tr.home+"/new", work, outside))

		l.with("--home", tr.home, "--writable", tr.path("home/proj")).mustPrint(t, "good")
		if tr.read("home/.profile") != "good" || tr.exists("home/made") || tr.exists("home/new") {
			t.Error("the home directory was changed")
		}
		if tr.read("home/proj/file") != "evil\n" || !tr.exists("outside/made") {
			t.Error("the hole or what is outside is not writable")
		}
		l.mustPrint(t, "good")
		if tr.read("home/.profile") != "evil\n" || !tr.exists("home/made") || !tr.exists("home/new") {
			t.Error("control: the home directory was not changed")
		}
	})
}

// TestHomeIsWritable names the home directory itself.
func TestHomeIsWritable(t *testing.T) {
	forEachCaller(t, func(t *testing.T, c caller) {
		tr := newTree(t, c)
		sh(c, writeAll(tr.home), "--home", tr.home, "--writable", tr.home+"/").mustPrint(t, "")
		if !tr.exists("home/made") {
			t.Error("it is not writable")
		}
	})
}

// TestSiblings is about the seed's rule that a hole also opened every file
// beside it whose name begins alike, and what such a link led to.
func TestSiblings(t *testing.T) {
	forEachCaller(t, func(t *testing.T, c caller) {
		tr := newTree(t, c)
		work := tr.mkdir("home/proj")
		workfile := tr.write("home/projfile", "good")
		secret := tr.write("home/secret", "good")
		worklink := tr.link("secret", "home/proj-link")
		workdir := tr.mkdir("home/proj.d")
		l := sh(c, writeAll(work, workfile, worklink, workdir, work+"-new"))

		l.with("--home", tr.home, "--writable", work).mustPrint(t, "")
		if tr.read("home/projfile") != "good" || tr.read("home/secret") != "good" || tr.exists("home/proj.d/made") || tr.exists("home/proj-new") {
			t.Error("a sibling was changed")
		}
		if !tr.exists("home/proj/made") {
			t.Error("the hole is not writable")
		}
		l.with("--home", tr.home, "--writable", work, "--writable", workfile, "--writable", secret).mustPrint(t, "")
		if tr.read("home/projfile") == "good" || tr.read("home/secret") == "good" {
			t.Error("control: files that are holes themselves are not writable")
		}
	})
}

// TestHomeFlags is about a home directory on a mount whose flags are locked: the
// seed's remount without them was refused, and the home directory stayed
// writable.
func TestHomeFlags(t *testing.T) {
	forEachCaller(t, func(t *testing.T, c caller) {
		need.Root(t)
		tr := newTree(t, c)
		l := sh(c, writeAll(tr.home)+"; ls -A "+tr.home+"; awk '$5 == \""+tr.home+"\" {print $6}' /proc/self/mountinfo | tail -1 | tr , '\\n' | grep -xE 'ro|nosuid|nodev'")
		l.prepare = func() error {
			data := fmt.Sprintf("mode=755,uid=%d,gid=%d", c.fileUID, c.fileUID)
			return unix.Mount("tmpfs", tr.home, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, data)
		}
		l.with("--home", tr.home).mustPrint(t, "ro\nnosuid\nnodev\n")
		l.mustPrint(t, "made\nnosuid\nnodev\n")
	})
}

// TestHomeSubmount is about mounts below the home directory, in a hole and not.
func TestHomeSubmount(t *testing.T) {
	forEachCaller(t, func(t *testing.T, c caller) {
		need.Root(t)
		tr := newTree(t, c)
		usb, cache := tr.mkdir("home/usb"), tr.mkdir("home/proj/cache")
		tr.mkdir("disk1")
		tr.mkdir("disk2")
		l := sh(c, writeAll(usb, cache))
		l.prepare = func() error { return errors.Join(bind(tr.path("disk1"), usb), bind(tr.path("disk2"), cache)) }

		l.with("--home", tr.home, "--writable", tr.path("home/proj")).mustPrint(t, "")
		if tr.exists("disk1/made") || !tr.exists("disk2/made") {
			t.Errorf("written below home: %v, in the hole: %v, want only the hole", tr.exists("disk1/made"), tr.exists("disk2/made"))
		}
		l.mustPrint(t, "")
		if !tr.exists("disk1/made") {
			t.Error("control: the mount below home is not writable")
		}
	})
}

// TestHoleIsMade is about a hole that is missing: it belongs to the command.
func TestHoleIsMade(t *testing.T) {
	forEachCaller(t, func(t *testing.T, c caller) {
		tr := newTree(t, c)
		cache := tr.home + "/.cache/tool"
		l := sh(c, "echo evil >"+cache+"/made; echo x >"+tr.home+"/.cache/made; true", "--home", tr.home, "--writable", cache)
		if got := l.run(t); got.status != 0 || !strings.Contains(got.stderr, "Read-only file system") {
			t.Errorf("got %+v, want only the hole to be writable", got)
		}
		if !tr.exists("home/.cache/tool/made") || tr.exists("home/.cache/made") {
			t.Error("the hole is not writable, or the directory above is")
		}
		for _, name := range []string{"home/.cache", "home/.cache/tool", "home/.cache/tool/made"} {
			var stat unix.Stat_t
			tr.check(unix.Stat(tr.path(name), &stat))
			if int(stat.Uid) != c.fileUID || int(stat.Gid) != c.fileUID {
				t.Errorf("%s belongs to %d:%d, want %d", name, stat.Uid, stat.Gid, c.fileUID)
			}
		}
	})
}

// TestHoleIsNotMadeByRoot is about a directory that the command may not write
// to: a root wrapper must not lend it its rights.
func TestHoleIsNotMadeByRoot(t *testing.T) {
	t.Parallel()
	c := realRoot()
	c.need(t)
	tr := newTree(t, caller{fileUID: 0})
	hole := tr.home + "/.cache"
	sh(c, "echo started", "--home", tr.home, "--writable", hole).mustRefuse(t,
		fmt.Sprintf("--writable %q: mkdirat %s/.cache: permission denied", hole, tr.home))
	if tr.exists("home/.cache") {
		t.Error("the directory was made")
	}
}

// TestHoleThroughLink is about holes that are links: an earlier run of the
// program could have put one into the directory that it may write to.
func TestHoleThroughLink(t *testing.T) {
	forEachCaller(t, func(t *testing.T, c caller) {
		tr := newTree(t, c)
		ssh := tr.mkdir("home/.ssh")
		work := tr.mkdir("home/proj")
		data := tr.mkdir("data")
		options := []string{"--home", tr.home, "--writable"}
		attack := sh(c, writeAll(ssh, tr.home))

		for _, tt := range []struct{ name, target, wantRefused string }{
			{"elsewhere in home", ssh, ssh},
			{"relative", "../.ssh", ssh},
			{"home itself", tr.home, tr.home},
		} {
			link := tr.link(tt.target, "home/proj/link")
			attack.with(append(options, link)...).mustRefuse(t, fmt.Sprintf(
				"cannot enforce --writable %q: a link leads to %q, in the home directory; name that", link, tt.wantRefused))
			tr.check(os.Remove(link))
		}
		for _, target := range []string{data, tr.dir, "/"} { // out of home
			link := tr.link(target, "home/proj/link")
			attack.with(append(options, link)...).mustPrint(t, "")
			if tr.exists("home/.ssh/made") || tr.exists("home/made") {
				t.Fatalf("a hole that links to %q opens the home directory", target)
			}
			sh(c, writeAll(work, link), append(options, link)...).mustPrint(t, "")
			if tr.exists("home/proj/made") || target == data && !tr.exists("data/made") {
				t.Errorf("link to %q: written beside the link, or not to its target", target)
			}
			tr.check(os.Remove(link))
		}
		attack.with(append(options, ssh)...).mustPrint(t, "")
		if !tr.exists("home/.ssh/made") {
			t.Error("control: the directory is not writable when it is the hole")
		}
	})
}

// TestHomeThroughLink names the home directory by a link that only root could
// change.
func TestHomeThroughLink(t *testing.T) {
	forEachCaller(t, func(t *testing.T, c caller) {
		need.Root(t)
		top := newTree(t, caller{fileUID: 0})
		tr := newTree(t, c)
		tr.mkdir("home/proj")
		home := top.link(tr.home, "link")
		l := sh(c, writeAll(tr.home, tr.path("home/proj")))
		if c.fileUID == 0 {
			l.with("--home", home).mustRefuse(t, fmt.Sprintf(
				"cannot enforce --home %q: the program could replace the link %q on the way; name what it leads to", home, home))
			return
		}
		l.with("--home", home, "--writable", home+"/proj").mustPrint(t, "")
		if tr.exists("home/made") || !tr.exists("home/proj/made") {
			t.Errorf("home written to: %v, hole: %v", tr.exists("home/made"), tr.exists("home/proj/made"))
		}
		l.mustPrint(t, "")
		if !tr.exists("home/made") {
			t.Error("control: the home directory is not writable")
		}
	})
}

// TestHomeInsideHole is about mounts in a hole that show the home directory or a
// part of it.
func TestHomeInsideHole(t *testing.T) {
	forEachCaller(t, func(t *testing.T, c caller) {
		need.Root(t)
		tr := newTree(t, c)
		self, config := tr.mkdir("home/proj/self"), tr.mkdir("home/proj/config")
		tr.mkdir("home/.config")
		work := tr.path("home/proj")
		l := sh(c, writeAll(self, config, work))
		l.prepare = func() error { return errors.Join(bind(tr.home, self), bind(tr.path("home/.config"), config)) }
		l.with("--home", tr.home, "--writable", work).mustPrint(t, "")
		if tr.exists("home/made") || tr.exists("home/.config/made") || !tr.exists("home/proj/made") {
			t.Errorf("written to home: %v, to a part: %v, to the hole: %v, want only the hole",
				tr.exists("home/made"), tr.exists("home/.config/made"), tr.exists("home/proj/made"))
		}
		l.mustPrint(t, "")
		if !tr.exists("home/made") || !tr.exists("home/.config/made") {
			t.Error("control: the home directory is not writable")
		}
	})
}

// TestHoleAboveHome is a contradiction, which must not open the home directory.
func TestHoleAboveHome(t *testing.T) {
	forEachCaller(t, func(t *testing.T, c caller) {
		tr := newTree(t, c)
		sh(c, writeAll(tr.home), "--home", tr.home, "--writable", tr.dir).mustPrint(t, "")
		if tr.exists("home/made") {
			t.Error("the home directory is writable")
		}
	})
}

func TestHomeMissing(t *testing.T) {
	t.Parallel()
	c := nsUser()
	c.need(t)
	tr := newTree(t, c)
	missing := tr.path("missing")
	sh(c, "echo started", "--home", missing).mustRefuse(t, fmt.Sprintf(
		"cannot enforce --home %q: it does not exist and the program could make it in %q; make it first", missing, tr.dir))
}
