package check

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"eggrun/egress"
	"eggrun/policy"
)

const installationGroup = "installation"

// installation checks what this program itself needs.
func (c *checker) installation(context.Context) error {
	c.add(c.stateDir(), c.auditDir())
	files, err := egress.ReadPolicyFiles()
	c.add(policyFiles(files, err))
	r := Result{Group: installationGroup, Name: "criu", Status: OK}
	if _, err := c.lookPath("criu"); err != nil {
		r.Status, r.Cause, r.Fix = Missing, "not installed; only checkpoints need it", "apt-get install criu"
	}
	c.add(r)
	return nil
}

func (c *checker) stateDir() Result {
	r := Result{Group: installationGroup, Name: "state", Status: OK, Cause: c.RuntimeRoot}
	switch {
	case c.RootErr != nil:
		r.Status, r.Cause = Bad, oneLine(c.RootErr.Error())
		r.Fix = fmt.Sprintf("export XDG_RUNTIME_DIR=/run/user/%d, or give --root", c.uid)
	case !canMake(c.RuntimeRoot):
		r.Status, r.Cause = Bad, c.RuntimeRoot+" can't be written to, or made"
		r.Fix = "give --root a directory that can"
	}
	return r
}

func (c *checker) auditDir() Result {
	r := Result{Group: installationGroup, Name: "audit", Status: OK}
	path, err := egress.AuditPath("", egress.Where{Rootless: c.Rootless})
	dir := filepath.Dir(path)
	r.Cause = dir
	switch {
	case err != nil:
		r.Status, r.Cause, r.Fix = Bad, oneLine(err.Error()), "export HOME or XDG_STATE_HOME"
	case !canMake(dir):
		r.Status, r.Cause, r.Fix = Bad, dir+" can't be written to, or made; containers with a list are refused", "mkdir -p "+dir+" && chmod 700 "+dir+", as the user who calls eggrun"
	}
	return r
}

// canMake tells whether files can be made in dir, which is made itself where it
// is not there.
func canMake(dir string) bool {
	for {
		if _, err := os.Stat(dir); err == nil || dir == filepath.Dir(dir) {
			return writable(dir)
		}
		dir = filepath.Dir(dir)
	}
}

// policyFiles judges the policy files as create would read them.
func policyFiles(files egress.PolicyFiles, err error) Result {
	r := Result{Group: installationGroup, Name: "policy", Status: OK, Cause: "no file: containers reach what their annotations say"}
	if err != nil {
		r.Status, r.Cause = Bad, oneLine(err.Error())
		r.Fix = "mend that; until then no container is created, for nobody knows what it may reach"
		return r
	}
	for _, file := range []*policy.File{files.Admin, files.User} {
		if file == nil {
			continue
		}
		r.Cause = ""
		if warnings := file.Warnings(); len(warnings) > 0 {
			r.Status = Missing
			r.Cause = oneLine(fmt.Sprint(warnings[0]))
			r.Fix = "mend that line, or see all warnings by eggrun policy check FILE"
			return r
		}
	}
	return r
}
