package integration

import (
	"path/filepath"
	"strings"
	"testing"
)

func podmanKubeCases() []podmanCase {
	return []podmanCase{
		{name: "kube play", needs: "catatonit", need: haveCatatonit, run: podmanKubePlay},
		{name: "kube generate", needs: "catatonit", need: haveCatatonit, run: podmanKubeGenerate},
	}
}

// kubeYAML is a pod as users write it: with a policy, a volume that its containers
// share, and a probe. Podman 4 gives an annotation no more than 63 characters.
const kubeYAML = `apiVersion: v1
kind: Pod
metadata:
  name: @NAME@
  annotations:
    eggrun.domains: "allowed.test:@PORT@ 127.0.0.1:@PORT@"
spec:
  restartPolicy: Never
  containers:
  - name: one
    image: localhost/busybox:latest
    imagePullPolicy: Never
    env: &env
    - {name: PATH, value: /bin}
    - {name: SSL_CERT_FILE, value: /ca.pem}
    command: [sh, -c, "echo kept >/data/file; echo up; @IDLE@"]
    volumeMounts: &volumes
    - {name: data, mountPath: /data}
    - {name: probe, mountPath: /probe}
    - {name: authority, mountPath: /ca.pem}
    livenessProbe:
      exec: {command: [test, -e, /data/file]}
      periodSeconds: 1000
      timeoutSeconds: 1000
  - name: two
    image: localhost/busybox:latest
    imagePullPolicy: Never
    env: *env
    command: [sh, -c, "@IDLE@"]
    volumeMounts: *volumes
  volumes:
  - name: data
    persistentVolumeClaim: {claimName: @NAME@}
  - name: probe
    hostPath: {path: @PROBE@, type: File}
  - name: authority
    hostPath: {path: @CA@, type: File}
`

// idle is a script that ends when it is stopped.
const idle = "trap 'exit 0' TERM; while :; do sleep 1000 & wait; done"

// podName is a name that no other case's pod has.
func (p *podman) podName() string { return strings.ToLower(filepath.Base(p.dir)) }

// playKube makes a pod of a file and returns the ids of its containers. In the end
// it is taken down, and what is left of it is looked for.
func (p *podman) playKube(name, file string) (ids []string) {
	p.t.Helper()
	p.t.Cleanup(func() {
		p.ok("kube", "down", file)
		equal(p.t, "pods", p.ok("pod", "ps", "-q", "--filter", "name="+name), "")
		for _, id := range ids {
			p.wantGone(id)
		}
	})
	p.ok("kube", "play", "--network", "none", file)
	ids = strings.Fields(p.ok("ps", "-a", "-q", "--no-trunc", "--filter", "pod="+name))
	if len(ids) != 3 {
		p.t.Fatalf("containers of the pod: %v, want two and the infra container", ids)
	}
	return ids
}

func podmanKubePlay(t *testing.T, p *podman) {
	s, name := newServer(t), p.podName()
	file := filepath.Join(p.dir, "pod.yaml")
	writeFile(t, file, strings.NewReplacer("@NAME@", name, "@PORT@", s.httpsPort, "@PROBE@", probePath(), "@CA@", s.caFile, "@IDLE@", idle).Replace(kubeYAML), 0o644)
	t.Cleanup(func() { p.ok("volume", "rm", "-f", name) })
	p.playKube(name, file)
	one, two := name+"-one", name+"-two"
	p.wantLog(one, "up")
	equal(t, "file in the volume", p.ok("exec", two, "cat", "/data/file"), "kept")
	equal(t, "exit status of the healthy", p.call("healthcheck", "run", one).code, 0)
	p.ok("exec", two, "rm", "/data/file")
	equal(t, "exit status of the sick", p.call("healthcheck", "run", one).code, 1)
	p.wantWall(one, s)
	p.wantWall(two, s)
}

// podmanKubeGenerate has podman write down a pod and make it again.
func podmanKubeGenerate(t *testing.T, p *podman) {
	s, name := newServer(t), p.podName()
	// No longer than what podman writes down.
	options := append(s.withServer(), "--annotation", "eggrun.domains=allowed.test:"+s.httpsPort+" 127.0.0.1:"+s.httpsPort)
	p.ok("pod", "create", "--name", name, "--network", "none", "--no-hosts", "--infra-command", "/catatonit -P")
	for _, container := range []string{"one", "two"} {
		p.ok(p.runArgs(append(append([]string{"-d", "--pod", name, "--name", name + container}, options...), image, "/bin/sh", "-c", idle)...)...)
	}
	file := filepath.Join(p.dir, "generated.yaml")
	p.ok("generate", "kube", "-f", file, name)
	p.ok("pod", "rm", "-f", "-t", "0", name)
	p.playKube(name, file)
	for _, container := range []string{"one", "two"} {
		p.wantWall(name+"-"+name+container, s)
	}
}
