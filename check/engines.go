package check

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"
)

const enginesGroup = "engines"

// runtimes are those that an engine knows: names, and the paths for each, of
// which it takes the first that is there.
type runtimes map[string][]string

// engine is one that may be configured to call eggrun.
type engine struct {
	name string
	// programs are its own, the first of which that is installed is asked for its
	// version.
	programs []string
	files    func(*host) []string
	// add adds to known what a file says.
	add func(known runtimes, data []byte) error
	// lines are what is missing in which file, %s is the path of this program.
	lines string
	traps []trap
}

// trap is what old versions of an engine do.
type trap struct {
	major, minor int // of the first version that does not
	what, fix    string
}

// knownEngines are those that are looked for.
func knownEngines() []engine {
	return []engine{
		{
			name: "podman", programs: []string{"podman"}, files: podmanFiles, add: addTOML,
			lines: `printf '[engine.runtimes]\neggrun = ["%s"]\n' >/etc/containers/containers.conf.d/50-eggrun.conf, or make install`,
			traps: []trap{
				{4, 6, "makes annotations of an image those of the container, so that its author can ask for domains", "set [limit] in /etc/eggrun/policy.toml"},
				{5, 0, "splits annotations at commas", "separate the entries of eggrun.domains by white space"},
				{5, 1, "drops annotations that come by the API, as from docker's command line", `set runtime = "eggrun" in [engine] of containers.conf, and [default] in /etc/eggrun/policy.toml`},
			},
		},
		{
			name: "docker", programs: []string{"dockerd", "docker"}, add: addDaemonJSON,
			files: func(h *host) []string {
				if dir := configHome(h.getenv); h.uid != 0 && dir != "" {
					return []string{filepath.Join(dir, "docker/daemon.json"), "/etc/docker/daemon.json"}
				}
				return []string{"/etc/docker/daemon.json"}
			},
			lines: `in /etc/docker/daemon.json: {"runtimes": {"eggrun": {"path": "%s"}}}, then restart docker`,
			traps: []trap{
				{24, 0, "knows no annotations", "set [default] in /etc/eggrun/policy.toml, which holds for all containers"},
			},
		},
		{
			name: "containerd", programs: []string{"containerd"}, add: addTOML,
			files: func(*host) []string { return []string{"/etc/containerd/config.toml"} },
			lines: `in /etc/containerd/config.toml: [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.eggrun] (before containerd 2: plugins."io.containerd.grpc.v1.cri") with runtime_type = "io.containerd.runc.v2" and options.BinaryName = "%s"; ctr and nerdctl need no such lines`,
		},
		{
			name: "cri-o", programs: []string{"crio"}, add: addTOML,
			files: func(h *host) []string {
				return append([]string{"/etc/crio/crio.conf"}, h.glob("/etc/crio/crio.conf.d/*")...)
			},
			lines: `in /etc/crio/crio.conf.d/eggrun.conf: [crio.runtime.runtimes.eggrun] with runtime_path = "%s" and runtime_type = "oci"`,
		},
	}
}

// engines checks those that are installed.
func (c *checker) engines(context.Context) error {
	for _, e := range knownEngines() {
		for _, program := range e.programs {
			if _, err := c.lookPath(program); err == nil {
				r, names := c.configured(&e)
				c.add(r)
				if e.name == "podman" {
					c.add(c.podman(names)...)
				}
				c.add(e.sprung(c.version(program))...)
				break
			}
		}
	}
	return nil
}

// configured tells whether an engine knows eggrun, and by which names.
func (c *checker) configured(e *engine) (r Result, names []string) {
	known := runtimes{}
	for _, file := range e.files(&c.host) {
		text := c.read(file)
		if text == "" {
			continue
		}
		if err := e.add(known, []byte(text)); err != nil {
			return Result{enginesGroup, e.name, Bad, fmt.Sprintf("%s: %s", file, oneLine(err.Error())), "mend that line: " + e.name + " reads it too"}, nil
		}
	}
	return c.judgeRuntimes(e, known)
}

// judgeRuntimes says which of the runtimes that an engine knows is eggrun.
func (c *checker) judgeRuntimes(e *engine, known runtimes) (r Result, names []string) {
	r = Result{Group: enginesGroup, Name: e.name, Fix: fmt.Sprintf(e.lines, c.Exe)}
	for name, paths := range known {
		at := slices.IndexFunc(paths, func(path string) bool { return c.judge(path).there })
		ours := strings.HasPrefix(name, "eggrun")
		switch {
		case at < 0 && ours:
			r.Status = Bad
			r.Cause = fmt.Sprintf("runtime %s: %s is not there", name, strings.Join(paths, ", "))
			return r, nil
		case at >= 0 && c.judge(paths[at]).same:
			names = append(names, name)
		case at >= 0 && ours:
			r.Status = Missing
			r.Cause = fmt.Sprintf("runtime %s is %s, which is not this program", name, paths[at])
		}
	}
	switch {
	case len(names) > 0:
		slices.Sort(names)
		r.Status, r.Cause, r.Fix = OK, "by --runtime "+strings.Join(names, ", "), ""
	case r.Cause == "":
		r.Status, r.Cause = Missing, "eggrun is no runtime that it knows"
	}
	return r, names
}

// sprung are the traps of the version that is installed.
func (e *engine) sprung(version string) []Result {
	var results []Result
	major, minor := parseVersion(version)
	for _, t := range e.traps {
		if older(version, t.major, t.minor) {
			results = append(results, Result{enginesGroup, fmt.Sprintf("%s %d.%d", e.name, major, minor), Missing,
				fmt.Sprintf("before %d.%d it %s", t.major, t.minor, t.what), t.fix})
		}
	}
	return results
}

// program is what a configured path leads to.
type program struct{ there, same bool }

func judgeProgram(path, exe string) program {
	theirs, err := os.Stat(path)
	if err != nil {
		return program{}
	}
	ours, err := os.Stat(exe)
	return program{there: true, same: err == nil && os.SameFile(theirs, ours)}
}

// glob returns the files of the host that match, in order.
func (h *host) glob(pattern string) []string {
	names, err := fs.Glob(h.files, strings.TrimPrefix(pattern, "/"))
	if err != nil {
		return nil // only a pattern that is none
	}
	for i := range names {
		names[i] = "/" + names[i]
	}
	return names
}

// addTOML adds the runtimes of a containers.conf, of containerd and of CRI-O:
// whatever is below a table "runtimes".
func addTOML(known runtimes, data []byte) error {
	var tree map[string]any
	if err := toml.Unmarshal(data, &tree); err != nil {
		return err
	}
	addRuntimes(known, tree)
	return nil
}

func addRuntimes(known runtimes, tree map[string]any) {
	for key, value := range tree {
		table, ok := value.(map[string]any)
		switch {
		case ok && key == "runtimes":
			for name, runtime := range table {
				if paths := pathsOf(runtime); len(paths) > 0 {
					known[name] = paths
				}
			}
		case ok:
			addRuntimes(known, table)
		}
	}
}

// pathsOf returns the paths of one runtime: podman has a list of them, which may
// end in a table of attributes, CRI-O and docker a key, containerd's options one.
func pathsOf(runtime any) (paths []string) {
	switch r := runtime.(type) {
	case []any:
		return stringsOf(r)
	case map[string]any:
		options, _ := r["options"].(map[string]any)
		for _, one := range []any{r["runtime_path"], r["path"], options["BinaryName"]} {
			if text, ok := one.(string); ok && text != "" {
				paths = append(paths, text)
			}
		}
	}
	return paths
}

// addDaemonJSON adds the runtimes of docker's daemon.json.
func addDaemonJSON(known runtimes, data []byte) error {
	var tree map[string]any
	if err := json.Unmarshal(data, &tree); err != nil {
		return err
	}
	addRuntimes(known, tree)
	return nil
}
