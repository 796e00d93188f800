package container

import "testing"

func TestEngine(t *testing.T) {
	t.Parallel()
	const id = "5d2b0a3c"
	for _, tt := range []struct{ id, root, log, pipe, want string }{
		{"c1", "", "", "", ""},
		{"c1", "/run/x", "", "", ""},
		{"c1", "/run/x", "/var/log/x.json", "", ""},
		{id, "", "/run/user/1000/containers/x/userdata/oci-log", "3", "podman"},
		{"buildah-buildah1234", "", "", "", "buildah"},
		{id, "/run/eggrun", "", "3", "cri-o"},
		{id, "/run/containerd/runc/k8s.io", "/run/containerd/x/log.json", "", "containerd"},
		{id, "/run/docker/runtime-runc/moby", "/run/docker/containerd/x/log.json", "", "docker"},
		{id, "", "/var/lib/docker/buildkit/executor/runc-log.json", "", "docker"},
	} {
		getenv := func(name string) string { return map[string]string{conmonVariable: tt.pipe}[name] }
		if got := Engine(tt.id, tt.root, tt.log, getenv); got != tt.want {
			t.Errorf("%+v: %q", tt, got)
		}
	}
}
