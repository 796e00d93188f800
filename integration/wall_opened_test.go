package integration

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// TestOpenedAfterCreate: engines put an interface into a namespace that create
// has made, and write a resolv.conf that fits, between create and start, as
// buildah does, or in a hook, as docker does. Only then is it known what the
// program is to be told.
func TestOpenedAfterCreate(t *testing.T) {
	t.Parallel()
	l := newLab(t, eggrunOnly(t))
	conf := filepath.Join(l.dir, "resolv.conf")
	const script = "grep -v ^# /etc/resolv.conf; env | grep -ci proxy; env | grep ^LAST="
	start := func(open bool, edits ...edit) string {
		t.Helper()
		writeFile(t, conf, "nameserver 192.0.2.1\nsearch host.example\n", 0o644)
		edits = append(edits, sh(script), domains(allowedName), addEnv("http_proxy=http://engine.example:1", "LAST=1"), addMounts(specs.Mount{
			Type: "bind", Source: conf, Destination: "/etc/resolv.conf", Options: []string{"bind"},
		}))
		c := l.create(edits...)
		if open {
			moving, _ := l.vethPair("eggop" + strconv.Itoa(l.containers))
			l.helper("ip", "link", "set", moving, "netns", strconv.Itoa(c.pid))
			inside := func(args ...string) {
				l.helper("nsenter", append([]string{"--net=/proc/" + strconv.Itoa(c.pid) + "/ns/net", "ip"}, args...)...)
			}
			inside("address", "add", "10.99.7.2/24", "dev", moving)
			inside("link", "set", moving, "up")
			writeFile(t, conf, "nameserver 10.99.7.1\nsearch engine.example\n", 0o644)
		}
		c.start()
		_, stdout, _ := c.finishOutput()
		return stdout
	}
	equal(t, "closed", start(false), "nameserver 198.18.0.1\n10\nLAST=1\n")
	equal(t, "opened", start(true), "nameserver 198.18.0.1\nsearch engine.example\n0\nLAST=1\n")
	equal(t, "opened, but told", start(true, annotate("eggrun.proxy-env", "on")), "nameserver 198.18.0.1\nsearch engine.example\n10\nLAST=1\n")
	if text, err := os.ReadFile(conf); err != nil || string(text) != "nameserver 10.99.7.1\nsearch engine.example\n" {
		t.Errorf("the engine's own file: %q, %v", text, err)
	}
}
