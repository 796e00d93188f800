package proxy

import (
	"context"
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"time"

	"eggrun/internal/need"
)

// TestClientsSeeTheAlert has real programs refused who do not know of a proxy.
func TestClientsSeeTheAlert(t *testing.T) {
	t.Parallel()
	lines := new(sink)
	_, at := enter(t, Options{Policy: allow(t, "good.test"), Audit: lines}, toOrigin(""))
	at.lead("evil.test", netip.AddrPortFrom(fake, tlsPort))
	host, port, _ := strings.Cut(at.redirected, ":")
	for _, tt := range []struct {
		name string
		args []string
		want string
	}{
		{"curl", []string{"-sS", "--noproxy", "*", "--resolve", "evil.test:" + port + ":" + host, "https://evil.test:" + port + "/"}, "alert access denied"},
		{"openssl", []string{"s_client", "-connect", at.redirected, "-servername", "evil.test"}, "alert access denied"},
		{"git", []string{"-c", "http.proxy=", "-c", "http.curloptResolve=evil.test:" + port + ":" + host, "ls-remote", "https://evil.test:" + port + "/x"}, "ccess"},
		{"python3", []string{"-c", "import ssl,socket; ssl.create_default_context().wrap_socket(socket.create_connection(('" + host + "'," + port + ")), server_hostname='evil.test')"}, "access denied"},
		{"node", []string{"-e", "require('tls').connect({host:'" + host + "',port:" + port + ",servername:'evil.test'}).on('error',e=>console.log(e.message))"}, "alert access denied"},
	} {
		// curl stands for all; the others only where they are.
		if _, err := exec.LookPath(tt.name); err != nil && tt.name != "curl" {
			continue
		}
		t.Run(tt.name, func(t *testing.T) {
			need.That(t, tt.name, func() error { _, err := exec.LookPath(tt.name); return err })
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			out, _ := exec.CommandContext(ctx, tt.name, tt.args...).CombinedOutput()
			if !strings.Contains(strings.ToLower(string(out)), tt.want) {
				t.Errorf("shows\n%s\nwant %q", out, tt.want)
			}
		})
	}
}
