package proxy

import (
	"io"
	"net/http"
	"net/url"
	"os/exec"
	"strings"
	"testing"

	"eggrun/internal/need"
)

func TestRefusalOnTheWire(t *testing.T) {
	t.Parallel()
	_, addr := serve(t, Options{Policy: allow(t, "good.test")}, nil)
	for _, tt := range []struct{ name, head, line, code, body string }{
		{"not listed", "CONNECT evil.test:443 HTTP/1.1\r\n\r\n",
			"HTTP/1.1 403 eggrun: evil.test:443 not on the allowlist", "not_listed",
			"eggrun: CONNECT evil.test:443: not on the allowlist; add it to eggrun.domains\n"},
		{"port not listed", "CONNECT good.test:22 HTTP/1.1\r\n\r\n",
			"HTTP/1.1 403 eggrun: good.test:22 port not on the allowlist", "port_not_listed",
			"eggrun: CONNECT good.test:22: port not on the allowlist; add it to eggrun.domains\n"},
		{"plain http", "GET http://evil.test/secret HTTP/1.1\r\nHost: evil.test\r\n\r\n",
			"HTTP/1.1 403 eggrun: evil.test:80 not on the allowlist", "not_listed",
			"eggrun: GET evil.test:80: not on the allowlist; add it to eggrun.domains\n"},
		{"canonical", "CONNECT EVIL.test.:443 HTTP/1.1\r\n\r\n",
			"HTTP/1.1 403 eggrun: evil.test:443 not on the allowlist", "not_listed",
			"eggrun: CONNECT evil.test:443: not on the allowlist; add it to eggrun.domains\n"},
		{"IPv6", "CONNECT [2600::1]:443 HTTP/1.1\r\n\r\n",
			"HTTP/1.1 403 eggrun: [2600::1]:443 not on the allowlist", "not_listed",
			"eggrun: CONNECT [2600::1]:443: not on the allowlist; add it to eggrun.domains\n"},
		{"no port", "CONNECT good.test HTTP/1.1\r\n\r\n",
			"HTTP/1.1 400 eggrun: no port; write host:port", "bad_target",
			"eggrun: CONNECT: target \"good.test\": no port; write host:port\n"},
		{"encoded IPv4", "CONNECT 127.1:443 HTTP/1.1\r\n\r\n",
			"HTTP/1.1 400 eggrun: encoded IPv4 address; write four decimal numbers, as in 127.0.0.1", "bad_target",
			"eggrun: CONNECT: target \"127.1:443\": encoded IPv4 address; write four decimal numbers, as in 127.0.0.1\n"},
		{"origin form", "GET / HTTP/1.1\r\nHost: good.test\r\n\r\n",
			"HTTP/1.1 405 eggrun: this is a proxy; send CONNECT host:port or an http:// URL", "not_proxied",
			"eggrun: GET /: not a request for a proxy; set HTTPS_PROXY and HTTP_PROXY to this address\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := dialProxy(t, addr)
			// Bytes behind the head must not turn the answer into a reset.
			c.send(t, tt.head+strings.Repeat("x", 100<<10))
			method, _, _ := strings.Cut(tt.head, " ")
			a := c.read(t, method)
			if a.line != tt.line || a.header.Get(denyHeader) != tt.code || a.body != tt.body {
				t.Errorf("got\n%s\n%s\n%swant\n%s\n%s\n%s", a.line, a.header.Get(denyHeader), a.body, tt.line, tt.code, tt.body)
			}
			if a.status == 407 || a.header.Get("Content-Type") != "text/plain; charset=utf-8" {
				t.Errorf("%s, %v", a.line, a.header)
			}
			if rest, err := io.ReadAll(c.in); len(rest) > 0 || err != nil {
				t.Errorf("then %q, %v, want a clean end", rest, err)
			}
		})
	}
}

func TestRefusalIsClean(t *testing.T) {
	t.Parallel()
	_, addr := serve(t, Options{Policy: allow(t, "good.test")}, nil)
	long := strings.Repeat("a", 63) + "." + strings.Repeat("b", 63) + "." + strings.Repeat("c", 63) + "." + strings.Repeat("d", 50) + ".evil.test"
	for _, target := range []string{
		long + ":65535", "x\x01\x7f.test:443", "b\xc3\xbccher.test:443", strings.Repeat("a", 5000) + ":1",
		"%0d%0aX-Injected:1:443", "\"quoted\":443", "<script>:443",
	} {
		for _, head := range []string{"CONNECT " + target + " HTTP/1.1\r\n\r\n", "GET http://" + target + "/ HTTP/1.1\r\nHost: " + target + "\r\n\r\n"} {
			c := dialProxy(t, addr)
			c.send(t, head)
			line, err := c.in.ReadString('\n')
			if err != nil {
				t.Fatalf("%.80q: %v", head, err)
			}
			line = strings.TrimSuffix(line, "\r\n")
			if len(line) > maxStatusLine || strings.Trim(line, printable) != "" || !strings.HasPrefix(line, "HTTP/1.1 4") {
				t.Errorf("%.80q: status line %q", head, line)
			}
			if strings.Contains(target, "evil.test") && !strings.HasSuffix(line, ".evil.test:65535 not on the allowlist") {
				t.Errorf("status line %q does not show whose name it is", line)
			}
		}
	}
}

var printable = func() string {
	var b []byte
	for c := byte(' '); c <= '~'; c++ {
		b = append(b, c)
	}
	return string(b)
}()

func TestClean(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		in   string
		most int
		want string
	}{
		{"", 10, ""},
		{"0123456789", 10, "0123456789"},
		{"0123456789a", 10, "01...6789a"},
		{"a\r\nb\x00\xff~", 10, "a??b??~"},
	} {
		if got := clean(tt.in, tt.most); got != tt.want {
			t.Errorf("clean(%q, %d) = %q, want %q", tt.in, tt.most, got, tt.want)
		}
	}
}

func TestGoClientSeesTheReason(t *testing.T) {
	t.Parallel()
	_, addr := serve(t, Options{Policy: allow(t, "good.test")}, nil)
	c := http.Client{Timeout: patience, Transport: &http.Transport{Proxy: http.ProxyURL(&url.URL{Scheme: "http", Host: addr})}}
	resp, err := c.Get("https://evil.test/")
	if err == nil {
		_ = resp.Body.Close()
		t.Fatal("reached evil.test")
	}
	if want := `Get "https://evil.test/": eggrun: evil.test:443 not on the allowlist`; err.Error() != want {
		t.Errorf("error %q, want %q", err, want)
	}
}

func TestCurlSeesTheReason(t *testing.T) {
	t.Parallel()
	need.That(t, "curl", func() error { _, err := exec.LookPath("curl"); return err })
	_, addr := serve(t, Options{Policy: allow(t, "good.test")}, nil)
	for _, tt := range []struct {
		url  string
		want []string
	}{
		{"http://evil.test/", []string{"eggrun: GET evil.test:80: not on the allowlist; add it to eggrun.domains"}},
		{"https://evil.test/", []string{
			"HTTP/1.1 403 eggrun: evil.test:443 not on the allowlist", "X-Eggrun-Deny: not_listed", "CONNECT tunnel failed, response 403",
		}},
	} {
		cmd := exec.Command("curl", "-sS", "-v", "--max-time", "10", "--proxy", "http://"+addr, "--noproxy", "", tt.url)
		out, err := cmd.CombinedOutput()
		if strings.HasPrefix(tt.url, "https") && err == nil {
			t.Errorf("%s: curl succeeded", tt.url)
		}
		for _, want := range tt.want {
			if !strings.Contains(string(out), want) {
				t.Errorf("%s: curl does not show %q:\n%s", tt.url, want, out)
			}
		}
	}
}
