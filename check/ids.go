package check

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/moby/sys/user"
)

const idsGroup = "rootless"

// wantSubIDs is what distributions give a user, and images expect.
const wantSubIDs = 65536

// ids checks what a caller without privileges needs to have more ids than his
// own, and a place for the containers' state.
func (c *checker) ids(context.Context) error {
	if c.privileged {
		return nil
	}
	name := fmt.Sprint(c.uid)
	if u, err := user.CurrentUser(); err == nil {
		name = u.Name
	} else {
		c.add(Result{idsGroup, "user", Missing, fmt.Sprintf("uid %d: %s", c.uid, oneLine(err.Error())),
			fmt.Sprintf("echo user%d:x:%[1]d:%d::%s:/bin/sh >>/etc/passwd", c.uid, os.Getegid(), c.getenv("HOME"))})
	}
	for _, kind := range []struct{ helper, file string }{
		{"newuidmap", "/etc/subuid"}, {"newgidmap", "/etc/subgid"},
	} {
		c.add(c.helper(kind.helper))
		c.add(subIDs(kind.file, c.read(kind.file), name, fmt.Sprint(c.uid)))
	}
	c.add(c.runtimeDir())
	return nil
}

const oneID = "containers have one id, the caller's own"

// helper checks newuidmap and newgidmap.
func (c *checker) helper(name string) Result {
	r := Result{Group: idsGroup, Name: name, Status: OK}
	if _, err := c.lookPath(name); err != nil {
		r.Status, r.Cause, r.Fix = Missing, "not installed; "+oneID, "apt-get install uidmap, or dnf install shadow-utils"
	}
	return r
}

// subIDs judges /etc/subuid and /etc/subgid, whose lines are USER:FIRST:COUNT.
func subIDs(path, text, name, uid string) Result {
	r := Result{Group: idsGroup, Name: path, Status: OK}
	ranges, err := user.ParseSubIDFilter(strings.NewReader(text), func(id user.SubID) bool { return id.Name == name || id.Name == uid })
	var count int64
	for _, one := range ranges {
		count += one.Count
	}
	switch {
	case err != nil:
		r.Cause = oneLine(err.Error())
	case count == 0:
		r.Cause = fmt.Sprintf("no line for user %s; %s", name, oneID)
	case count < wantSubIDs:
		r.Cause = fmt.Sprintf("%d ids for user %s; files of images have ids up to %d", count, name, wantSubIDs-1)
	default:
		r.Cause = fmt.Sprintf("%d ids", count)
		return r
	}
	r.Status = Missing
	r.Fix = fmt.Sprintf("echo %s:100000:%d >>%s, with a range that nobody else has", name, wantSubIDs, path)
	return r
}

// runtimeDir checks the variable that engines take their directories from too.
func (c *checker) runtimeDir() Result {
	r := Result{Group: idsGroup, Name: "XDG_RUNTIME_DIR", Status: OK}
	dir := c.getenv(r.Name)
	fix := fmt.Sprintf("log in by a session of systemd, or mkdir -m 700 /run/user/%d, as that user, and export XDG_RUNTIME_DIR=/run/user/%[1]d", c.uid)
	switch {
	case dir == "":
		r.Cause = "not set, and engines for users need it"
	case !writable(dir):
		r.Cause = dir + " can't be written to, and engines for users need it"
	default:
		return r
	}
	r.Status, r.Fix = Missing, fix
	return r
}
