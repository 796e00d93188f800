package check

import (
	"path"
	"path/filepath"
	"slices"
	"strings"

	"eggrun/egress"
	"eggrun/policy"

	"github.com/pelletier/go-toml/v2"
)

// podmanFiles are those that podman reads, in its order; see containers.conf(5).
func podmanFiles(h *host) []string {
	if file := h.getenv("CONTAINERS_CONF"); file != "" {
		return []string{file}
	}
	files := []string{"/usr/share/containers/containers.conf", "/etc/containers/containers.conf"}
	files = append(files, h.glob("/etc/containers/containers.conf.d/*.conf")...)
	if dir := configHome(h.getenv); h.uid != 0 && dir != "" {
		files = append(files, filepath.Join(dir, "containers/containers.conf"))
		files = append(files, h.glob(filepath.Join(dir, "containers/containers.conf.d/*.conf"))...)
	}
	if file := h.getenv("CONTAINERS_CONF_OVERRIDE"); file != "" {
		files = append(files, file)
	}
	return files
}

// configHome is where a user's configuration is, "" where that can't be told.
func configHome(getenv func(string) string) string {
	if dir := getenv("XDG_CONFIG_HOME"); path.IsAbs(dir) {
		return dir
	}
	if dir := getenv("HOME"); path.IsAbs(dir) {
		return filepath.Join(dir, ".config")
	}
	return ""
}

// podmanConf is what of containers.conf matters beside the runtimes. Lists may end
// in a table of attributes.
type podmanConf struct {
	Containers struct {
		Annotations []any `toml:"annotations"`
	} `toml:"containers"`
	Engine struct {
		SupportsJSON []any `toml:"runtime_supports_json"`
	} `toml:"engine"`
}

// podman checks the rest of its configuration, where eggrun is known there by
// some names.
func (c *checker) podman(names []string) []Result {
	var conf podmanConf
	var results []Result
	for _, file := range podmanFiles(&c.host) {
		var one podmanConf
		if toml.Unmarshal([]byte(c.read(file)), &one) != nil {
			return nil // which has been said
		}
		if one.Containers.Annotations != nil {
			conf.Containers = one.Containers
			if r, ok := judgeAnnotations(file, stringsOf(one.Containers.Annotations), c.resolve); ok {
				results = append(results, r)
			}
		}
		if one.Engine.SupportsJSON != nil {
			conf.Engine = one.Engine
		}
	}
	for _, name := range names {
		if !slices.Contains(stringsOf(conf.Engine.SupportsJSON), name) {
			results = append(results, Result{enginesGroup, "podman errors", Missing, name + " is not in runtime_supports_json, so errors come with those of conmon around them",
				`in [engine] of containers.conf: runtime_supports_json = ["crun", "runc", "kata", "runsc", "youki", "krun", "` + name + `"]`})
		}
	}
	return results
}

// resolveHere says why podman's containers with these annotations would be
// refused, by the policy files that are there.
func resolveHere(annotations map[string]string) error {
	files, err := egress.ReadPolicyFiles()
	if err != nil {
		return nil // which the line about the policy says
	}
	_, err = policy.Resolve(policy.Request{
		Annotations: annotations,
		Caller:      policy.Caller{UID: files.UID, Engine: "podman", Argv0: "eggrun"},
		Admin:       files.Admin,
		User:        files.User,
	})
	return err
}

// judgeAnnotations judges those that podman gives every container; ok is false
// where none is eggrun's.
func judgeAnnotations(file string, list []string, resolve func(map[string]string) error) (r Result, ok bool) {
	annotations := map[string]string{}
	for _, one := range list {
		if key, value, _ := strings.Cut(one, "="); strings.HasPrefix(key, "eggrun.") {
			annotations[key] = value
		}
	}
	r = Result{Group: enginesGroup, Name: "podman annotations", Status: OK, Cause: file}
	if err := resolve(annotations); err != nil {
		r.Status, r.Cause = Bad, file+": no container can be made with them: "+oneLine(err.Error())
		r.Fix = "mend annotations in [containers] of " + file
	}
	return r, len(annotations) > 0
}

// stringsOf returns the strings of a list.
func stringsOf(list []any) (texts []string) {
	for _, one := range list {
		if text, ok := one.(string); ok {
			texts = append(texts, text)
		}
	}
	return texts
}
