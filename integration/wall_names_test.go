package integration

import (
	"strings"
	"testing"
)

// TestAnswers asks the resolver, by UDP and by TCP, what programs ask: 3 is that
// there is no such name, 0 without a record that it has nothing of that type. The
// question comes back as it was, to the case of its letters.
func TestAnswers(t *testing.T) {
	t.Parallel()
	l := newLab(t, eggrunOnly(t))
	questions := []struct{ ask, want string }{
		{"1:allowed.test", "0 1"}, {"1:AlLoWeD.tEsT", "0 1"}, {"1:x.wild.test", "0 1"},
		{"28:allowed.test", "0 0"}, {"65:allowed.test", "0 0"}, {"64:allowed.test", "0 0"}, {"33:allowed.test", "0 0"}, {"16:allowed.test", "0 0"},
		{"15:allowed.test", "0 0"}, {"5:allowed.test", "0 0"}, {"255:allowed.test", "0 0"}, {"12:allowed.test", "0 0"},
		{"12:2.0.18.198.in-addr.arpa", "0 1"}, {"1:2.0.18.198.in-addr.arpa", "0 0"}, {"12:9.9.18.198.in-addr.arpa", "3 0"}, {"12:1.2.0.192.in-addr.arpa", "3 0"},
		{"1:evil.test", "3 0"}, {"28:evil.test", "3 0"}, {"65:evil.test", "3 0"}, {"16:EVIL.test", "3 0"},
		{"1:wild.test", "3 0"}, {"1:x.allowed.test", "3 0"}, {"1:allowed.test.dns.podman", "3 0"}, {"1:web", "3 0"},
		{"1:localhost", "0 1"}, {"28:localhost", "0 1"},
		{"1/3:allowed.test", "4 0"}, {"two:allowed.test", "1 0"},
	}
	var asked, want []string
	for _, q := range questions {
		_, name, _ := strings.Cut(q.ask, ":")
		asked = append(asked, q.ask)
		want = append(want, name+" "+q.want)
	}
	for _, network := range []string{"udp", "tcp"} {
		got := l.output("/probe answers "+network+" 198.18.0.1:53 "+strings.Join(asked, " "), withProbe, domains("allowed.test *.wild.test"))
		lines := strings.Split(got, "\n")
		for i := range lines {
			if i < len(want) && lines[i] != want[i] {
				t.Errorf("%s, %s: %q, want %q", network, asked[i], lines[i], want[i])
			}
		}
		equal(t, network+": answers", len(lines), len(want))
	}
	// The control: in observe mode nothing of the public's is refused.
	got := l.output("/probe answers udp 198.18.0.1:53 1:www.example.com 1:evil.test", withProbe, domains("allowed.test"), annotate("eggrun.mode", "observe"))
	equal(t, "observing", got, "www.example.com 0 1\nevil.test 3 0")
}
