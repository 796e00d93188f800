package initproc

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"eggrun/internal/need"
)

// TestDenyDirectory also tells that nothing comes back by another way in.
func TestDenyDirectory(t *testing.T) {
	forEachCaller(t, func(t *testing.T, c caller) {
		tr := newTree(t, c)
		ssh := filepath.Dir(tr.write("home/.ssh/id", "secret"))
		const attack = `cat .ssh/id; ls -A .ssh; echo x >.ssh/planted; mkdir .ssh/d; cat /proc/self/root$PWD/.ssh/id; true`
		l := sh(c, "exec 2>&1; "+attack)
		l.dir = tr.home

		if got := l.run(t); got.stdout != "secretid\nsecret" || !tr.exists("home/.ssh/planted") {
			t.Fatalf("control: %+v, want the secret and a planted file", got)
		}
		for _, name := range []string{"planted", "d"} {
			tr.check(os.Remove(filepath.Join(ssh, name)))
		}
		got := l.with("--deny", ssh).run(t)
		if strings.Contains(got.stdout, "secret") || strings.Contains(got.stdout, "\nid\n") {
			t.Errorf("printed %q", got.stdout)
		}
		if tr.exists("home/.ssh/planted") || tr.exists("home/.ssh/d") {
			t.Error("something was made in the denied directory")
		}
	})
}

// TestDenyFile is about files, which the seed could not hide.
func TestDenyFile(t *testing.T) {
	forEachCaller(t, func(t *testing.T, c caller) {
		tr := newTree(t, c)
		token := tr.write("home/token", "secret")
		l := sh(c, "cat "+token+"; echo x >>"+token+"; rm -f "+token+" 2>/dev/null; true")

		l.with("--deny", token).mustPrint(t, "")
		if got := tr.read("home/token"); got != "secret" {
			t.Errorf("the file now holds %q", got)
		}
		l.mustPrint(t, "secret")
		if tr.exists("home/token") {
			t.Error("control: the file was not removed")
		}
	})
}

func TestDenySocket(t *testing.T) {
	forEachCaller(t, func(t *testing.T, c caller) {
		tr := newTree(t, c)
		path := tr.path("sock")
		listener, err := net.Listen("unix", path)
		tr.check(err)
		defer listener.Close()
		tr.own(path)
		l := launch{caller: c, command: []string{selfPath(t), asAgent, "do", "dial", path}}
		l.mustPrint(t, "ok\n")
		l.with("--deny", path).mustPrint(t, "ECONNREFUSED\n")
	})
}

// TestDenyLink denies a path whose last name is a link. It lies in a read-only
// home, so that the program cannot replace it.
func TestDenyLink(t *testing.T) {
	forEachCaller(t, func(t *testing.T, c caller) {
		tr := newTree(t, c)
		tr.write("secrets/dir/id", "secret 1\n")
		tr.write("secrets/file", "secret 2\n")
		dir := tr.link(tr.path("secrets/dir"), "home/dir")
		file := tr.link("../secrets/file", "home/file")
		l := sh(c, fmt.Sprintf("exec 2>/dev/null; cd %s; cat home/dir/id secrets/dir/id home/file secrets/file; true", tr.dir))

		l.with("--home", tr.home).mustPrint(t, "secret 1\nsecret 1\nsecret 2\nsecret 2\n")
		l.with("--home", tr.home, "--deny", dir, "--deny", file).mustPrint(t, "")
	})
}

// TestDenyInHole denies a part of what is writable.
func TestDenyInHole(t *testing.T) {
	forEachCaller(t, func(t *testing.T, c caller) {
		tr := newTree(t, c)
		env := tr.write("home/project/app/.env", "secret")
		work := tr.path("home/project")
		l := sh(c, "cat "+env+" && touch "+work+"/app/made")
		options := []string{"--home", tr.home, "--writable", work}

		l.with(options...).mustPrint(t, "secret")
		tr.check(os.Remove(tr.path("home/project/app/made")))
		l.with(append(options, "--deny", env)...).mustPrint(t, "")
		if !tr.exists("home/project/app/made") {
			t.Error("the hole is not writable")
		}
		l = sh(c, "ls -A "+work+"/app")
		l.with(append(options, "--deny", filepath.Dir(env), "--deny", env)...).mustPrint(t, "")
	})
}

func TestDenyWrite(t *testing.T) {
	forEachCaller(t, func(t *testing.T, c caller) {
		tr := newTree(t, c)
		policy := tr.write("work/egg.yaml", "policy")
		hook := tr.write("work/hooks/pre", "hook")
		attacks := strings.Join([]string{
			"echo evil >egg.yaml", "echo evil >>egg.yaml", "rm -f egg.yaml", "mv egg.yaml gone", "chmod 777 egg.yaml",
			"echo evil >new && mv -f new egg.yaml", "ln egg.yaml other && echo evil >other",
			"echo evil >hooks/pre", "echo evil >hooks/more", "rm -r hooks", "mv hooks gone2",
		}, "\n")
		l := sh(c, "exec 2>/dev/null; cat egg.yaml hooks/pre\n"+attacks+"\ntrue")
		l.dir = tr.path("work")

		l.with("--deny-write", policy, "--deny-write", filepath.Dir(hook)).mustPrint(t, "policyhook")
		if tr.read("work/egg.yaml") != "policy" || tr.read("work/hooks/pre") != "hook" || tr.exists("work/hooks/more") {
			t.Error("something was changed")
		}
		l.mustPrint(t, "policyhook")
		if tr.read("work/egg.yaml") == "policy" || tr.exists("work/hooks") {
			t.Error("control: something was not changed")
		}
	})
}

// TestDenyWriteSubmount is about a writable mount below a directory that is not.
func TestDenyWriteSubmount(t *testing.T) {
	forEachCaller(t, func(t *testing.T, c caller) {
		need.Root(t)
		tr := newTree(t, c)
		below := tr.mkdir("work/dir/below")
		tr.mkdir("other")
		l := sh(c, "exec 2>/dev/null; touch "+below+"/made; true")
		l.prepare = func() error { return bind(tr.path("other"), below) }

		l.with("--deny-write", tr.path("work/dir")).mustPrint(t, "")
		if tr.exists("other/made") {
			t.Error("the mount is writable")
		}
		l.mustPrint(t, "")
		if !tr.exists("other/made") {
			t.Error("control: the mount is not writable")
		}
	})
}

// TestDenyRoot is about "/", over which a mount would have no effect.
func TestDenyRoot(t *testing.T) {
	forEachCaller(t, func(t *testing.T, c caller) {
		for _, option := range []string{"--deny", "--deny-write", "--home"} {
			sh(c, "echo started", option, "/").mustRefuse(t,
				"cannot enforce "+option+` "/": it is "/", or can be seen there, which cannot be covered; name the directories in it`)
		}
	})
}
