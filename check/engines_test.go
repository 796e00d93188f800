package check

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
)

func TestAddRuntimes(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, text string
		add        func(runtimes, []byte) error
		want       runtimes
	}{
		{"podman", "[engine]\nruntime = \"eggrun\"\n[engine.runtimes]\neggrun = [\"/a\", \"/b\", {append=true}]\n", addTOML, runtimes{"eggrun": {"/a", "/b"}}},
		{"containerd 1", "version = 2\n[plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.eggrun]\nruntime_type = \"io.containerd.runc.v2\"\n" +
			"[plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.eggrun.options]\nBinaryName = \"/a\"\n", addTOML, runtimes{"eggrun": {"/a"}}},
		{"containerd 2", "version = 3\n[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes]\nrunc = {options = {}}\negg = {options = {BinaryName = '/a'}}\n", addTOML, runtimes{"egg": {"/a"}}},
		{"CRI-O", "[crio.runtime.runtimes.eggrun]\nruntime_path = \"/a\"\nruntime_root = \"/run/eggrun\"\n", addTOML, runtimes{"eggrun": {"/a"}}},
		{"docker", `{"runtimes": {"a": {"path": "/a", "runtimeArgs": []}, "b": {"runtimeType": "io.containerd.runc.v2", "options": {"BinaryName": "/b"}}, "c": {}}}`, addDaemonJSON, runtimes{"a": {"/a"}, "b": {"/b"}}},
		{"other types", "runtimes = 3\n[x.runtimes]\na = 1\nb = [2]\n", addTOML, runtimes{}},
	} {
		known := runtimes{}
		if err := tt.add(known, []byte(tt.text)); err != nil || !maps.EqualFunc(known, tt.want, slices.Equal) {
			t.Errorf("%s: got %v, %v", tt.name, known, err)
		}
	}
	if addTOML(runtimes{}, []byte("[engine")) == nil || addDaemonJSON(runtimes{}, []byte(`{"runtimes"`)) == nil {
		t.Error("no error for a file that can't be read")
	}
}

func TestJudgeRuntimes(t *testing.T) {
	t.Parallel()
	c := onHost(nil, nil, "/opt/eggrun", "/usr/bin/crun")
	podman := &knownEngines()[0]
	for _, tt := range []struct {
		known      runtimes
		status     Status
		cause, fix string
	}{
		{runtimes{"eggrun": {"/opt/eggrun"}, "egg": {"/nowhere", "/opt/eggrun"}}, OK, "--runtime egg, eggrun", ""},
		{runtimes{"crun": {"/usr/bin/crun"}, "kata": {"/nowhere"}}, Missing, "no runtime that it knows", `eggrun = ["/opt/eggrun"]`},
		{runtimes{}, Missing, "no runtime that it knows", "/opt/eggrun"},
		{runtimes{"eggrun": {"/nowhere"}}, Bad, "runtime eggrun: /nowhere is not there", "/opt/eggrun"},
		{runtimes{"eggrun-ci": {"/nowhere"}, "eggrun": {"/opt/eggrun"}}, Bad, "eggrun-ci: /nowhere", "/opt/eggrun"},
		{runtimes{"eggrun": {"/usr/bin/crun"}}, Missing, "/usr/bin/crun, which is not this program", "/opt/eggrun"},
	} {
		r, _ := c.judgeRuntimes(podman, tt.known)
		want(t, r, tt.status, tt.cause, tt.fix)
	}
}

func TestConfigured(t *testing.T) {
	t.Parallel()
	const ours = "[engine.runtimes]\neggrun = [\"/opt/eggrun\"]\n"
	podman := &knownEngines()[0]
	for path, env := range map[string]map[string]string{
		"/usr/share/containers/containers.conf":            nil,
		"/etc/containers/containers.conf.d/50-eggrun.conf": nil,
		"/home/me/.config/containers/containers.conf":      {"HOME": "/home/me"},
		"/cfg/containers/containers.conf.d/x.conf":         {"XDG_CONFIG_HOME": "/cfg", "HOME": "/home/me"},
		"/somewhere.conf": {"CONTAINERS_CONF": "/somewhere.conf"},
		"/last.conf":      {"CONTAINERS_CONF_OVERRIDE": "/last.conf"},
	} {
		r, names := onHost(map[string]string{path: ours}, env, "/opt/eggrun").configured(podman)
		want(t, r, OK, "--runtime eggrun", "")
		if !slices.Equal(names, []string{"eggrun"}) {
			t.Errorf("%s: names %v", path, names)
		}
	}
	// A later file takes the name.
	c := onHost(map[string]string{"/usr/share/containers/containers.conf": ours, "/etc/containers/containers.conf": "[engine.runtimes]\neggrun = [\"/nowhere\"]\n"}, nil, "/opt/eggrun")
	r, _ := c.configured(podman)
	want(t, r, Bad, "/nowhere is not there", "/opt/eggrun")
	c = onHost(map[string]string{"/etc/containers/containers.conf": "[engine"}, nil)
	r, _ = c.configured(podman)
	want(t, r, Bad, "/etc/containers/containers.conf: ", "mend")
}

func TestTraps(t *testing.T) {
	t.Parallel()
	podman := &knownEngines()[0]
	for version, wanted := range map[string]int{"podman version 4.3.1": 3, "podman version 4.9.3": 2, "podman version 5.0.3": 1, "podman version 5.4.2": 0, "": 0} {
		results := podman.sprung(version)
		if len(results) != wanted {
			t.Errorf("%q: %+v, want %d", version, results, wanted)
		}
		for _, r := range results {
			want(t, r, Missing, "before ", "")
		}
	}
}

// TestEngines looks at those only that are installed.
func TestEngines(t *testing.T) {
	t.Parallel()
	var asked []string
	c := onHost(nil, nil, "/usr/bin/dockerd", "/usr/bin/docker", "/usr/bin/crio")
	c.version = func(program string) string { asked = append(asked, program); return "" }
	if err := c.engines(t.Context()); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, r := range c.results {
		names = append(names, r.Name)
	}
	if !reflect.DeepEqual(names, []string{"docker", "cri-o"}) || strings.Join(asked, " ") != "dockerd crio" {
		t.Errorf("checked %v, asked %v", names, asked)
	}
}

// TestPodman has two files, the second of which counts.
func TestPodman(t *testing.T) {
	t.Parallel()
	const first, second = "/usr/share/containers/containers.conf", "/etc/containers/containers.conf"
	json := "[engine]\nruntime_supports_json = [\"crun\", \"eggrun\", {append=true}]\n"
	for _, tt := range []struct {
		name       string
		files      map[string]string
		names      []string
		status     Status
		cause, fix string
	}{
		{"all there", map[string]string{first: json}, []string{"eggrun"}, "", "", ""},
		{"podman's own list", nil, []string{"eggrun"}, Missing, "eggrun is not in runtime_supports_json", `"krun", "eggrun"]`},
		{"a later list", map[string]string{first: json, second: "[engine]\nruntime_supports_json = [\"crun\"]\n"}, []string{"eggrun"}, Missing, "eggrun is not in", "eggrun"},
		{"not known", nil, nil, "", "", ""},
		{"others' annotations", map[string]string{second: "[containers]\nannotations = [\"run.oci.keep_original_groups=1\"]\n"}, nil, "", "", ""},
		{"a list", map[string]string{second: "[containers]\nannotations = [\"eggrun.domains=a.example b.example\"]\n"}, nil, OK, second, ""},
		{"a broken list", map[string]string{second: "[containers]\nannotations = [\"eggrun.domains=a..example\"]\n"}, nil, Bad, second + ": no container", "[containers] of " + second},
		{"a key that is none", map[string]string{second: "[containers]\nannotations = [\"eggrun.domain=a.example\"]\n"}, nil, Bad, "eggrun.domain", second},
		{"not TOML", map[string]string{first: "[engine"}, []string{"eggrun"}, "", "", ""},
	} {
		results := onHost(tt.files, nil).podman(tt.names)
		if len(results) > 1 || (len(results) == 0) != (tt.status == "") {
			t.Errorf("%s: %+v", tt.name, results)
		}
		for _, r := range results {
			want(t, r, tt.status, tt.cause, tt.fix)
		}
	}
}
