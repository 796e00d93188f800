package check

import (
	"errors"
	"maps"
	"net"
	"slices"
	"strings"
	"testing"

	"eggrun/egress"
	"eggrun/policy"
)

// asWanted is what a container says behind a wall that stands.
func asWanted() (found, outside map[string]answers) {
	found, outside = map[string]answers{}, map[string]answers{}
	for _, a := range attempts() {
		found[a.name] = answers{"somewhere": "refused " + a.refusal}
		if a.reached {
			found[a.name]["somewhere"] = ""
		}
		if a.control {
			outside[a.name] = answers{"somewhere": ""}
		}
	}
	return found, outside
}

func TestJudgeTrial(t *testing.T) {
	t.Parallel()
	found, outside := asWanted()
	for _, r := range (&trial{found, outside, true, true}).judge() {
		want(t, r, OK, "", "")
	}
	for i, a := range attempts() {
		judge := func(inside, control string) Result {
			found, outside := asWanted()
			found[a.name], outside[a.name] = answers{"somewhere": inside}, answers{"somewhere": control}
			return (&trial{found, outside, true, true}).judge()[i]
		}
		if a.reached {
			want(t, judge("timeout", ""), Bad, "timeout", "listed must be reached")
			continue
		}
		want(t, judge("", ""), Bad, "reached somewhere", "SECURITY.md")
		if a.refusal != "" {
			want(t, judge("502", ""), Bad, "without the reason "+a.refusal, "same version")
		}
		if a.control {
			want(t, judge("refused", "timeout"), Missing, "the host does not reach somewhere", "firewall")
		}
		delete(found, a.name)
		want(t, (&trial{found, outside, true, true}).judge()[i], Missing, "no such address", "none needed")
	}
}

// TestJudgeTrialLimited is a policy file that does not let our server be
// listed.
func TestJudgeTrialLimited(t *testing.T) {
	t.Parallel()
	found, outside := asWanted()
	found["other port"] = answers{"somewhere": "403 (not_listed)"}
	found["other port, no proxy"] = answers{"somewhere": "no such host"}
	for i, r := range (&trial{found, outside, false, true}).judge() {
		if attempts()[i].reached {
			want(t, r, Missing, "policy file", "[limit]")
		} else {
			want(t, r, OK, "refused", "")
		}
	}
}

// TestJudgeTrialWithoutTables is a kernel without nftables: nobody answers who
// asks for a name.
func TestJudgeTrialWithoutTables(t *testing.T) {
	t.Parallel()
	found, outside := asWanted()
	for _, a := range attempts() {
		if a.tables {
			found[a.name] = answers{"somewhere": "timeout"}
		}
	}
	for i, r := range (&trial{found, outside, true, false}).judge() {
		if attempts()[i].tables && attempts()[i].reached {
			want(t, r, Missing, "without nftables", "nftables")
		} else {
			want(t, r, OK, "", "")
		}
	}
}

// TestHolesAreFound makes the attempts with nothing in between: what can be
// reached from here is reported, so a wall with a hole would be.
func TestHolesAreFound(t *testing.T) {
	t.Parallel()
	s, err := serve("")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	found := map[string]answers{}
	for _, a := range attempts() {
		if a.control {
			found[a.name] = a.make(&s.targets)
		}
	}
	var holes []string
	for _, r := range (&trial{found, found, true, true}).judge() {
		if r.Status == Bad {
			want(t, r, Bad, "the container reached ", "SECURITY.md")
			holes = append(holes, r.Name)
		}
	}
	for _, name := range []string{"other address", "UDP", "abstract unix socket"} {
		if !slices.Contains(holes, name) {
			t.Errorf("%s: not found: %v", name, found[name])
		}
	}
}

// TestAskWantsTheSecret: whoever else listens, and whoever else asks, is told
// apart.
func TestAskWantsTheSecret(t *testing.T) {
	t.Parallel()
	s, err := serve("")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	dial := over("tcp")
	if err := dial(&s.targets, s.TCP4[0]); err != nil {
		t.Errorf("control: %v", err)
	}
	if err := dial(&targets{Secret: "another"}, s.TCP4[0]); err == nil {
		t.Error("an answer without the secret")
	}
	stranger, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer stranger.Close()
	go func() {
		if conn, err := stranger.Accept(); err == nil {
			_, _ = conn.Write([]byte(strings.Repeat("x", 100)))
			conn.Close()
		}
	}()
	if err := dial(&s.targets, stranger.Addr().String()); err == nil {
		t.Error("somebody else was taken for the server")
	}
}

func TestJudgeAudit(t *testing.T) {
	t.Parallel()
	const line = `{"host":"` + denied + `","decision":"deny"}` + "\n"
	want(t, judgeAudit(`{"host":"localhost","decision":"allow"}`+"\n"+line), OK, "", "")
	want(t, judgeAudit(strings.Replace(line, "deny", "allow", 1)), Bad, "not in the audit log", "disk")
	want(t, judgeAudit("nonsense\n"), Bad, "not in the audit log", "disk")
}

func TestBrokenContainer(t *testing.T) {
	t.Parallel()
	want(t, brokenContainer("run x: cannot enforce; run with --network none"), Bad, "run x: cannot enforce", "run with --network none")
	want(t, brokenContainer("run x: why"), Bad, "run x: why", "the lines above")
}

func TestPolicyFiles(t *testing.T) {
	t.Parallel()
	parse := func(text string) *policy.File {
		file, err := policy.ParseFile("policy.toml", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return file
	}
	fine, odd := parse("[default]\ndomains = [\"good.test\"]\n"), parse("[limit]\ndomains = [\"good.test\"]\n")
	want(t, policyFiles(egress.PolicyFiles{}, nil), OK, "no file", "")
	want(t, policyFiles(egress.PolicyFiles{Admin: fine, User: fine}, nil), OK, "", "")
	want(t, policyFiles(egress.PolicyFiles{Admin: odd}, nil), Missing, "no [default]", "eggrun policy check")
	want(t, policyFiles(egress.PolicyFiles{User: odd}, nil), Missing, "no [default]", "eggrun policy check")
	want(t, policyFiles(egress.PolicyFiles{}, errors.New("policy.toml:1:\nbroken")), Bad, "policy.toml:1: broken", "mend")
}

// TestAttemptNames: results are told apart by their names.
func TestAttemptNames(t *testing.T) {
	t.Parallel()
	names := map[string]bool{}
	for _, a := range attempts() {
		names[a.name] = true
	}
	if len(names) != len(attempts()) {
		t.Errorf("names: %v", slices.Sorted(maps.Keys(names)))
	}
}

func TestLoopbackName(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ hosts, name, address string }{
		{"127.0.0.1 localhost\n127.0.1.1\tthis.example this # ours\n", "this.example", "127.0.1.1"},
		{"127.0.0.1 localhost localhost.localdomain vm\n", "vm", "127.0.0.1"},
		{"::1 localhost ip6-localhost\n", "ip6-localhost", "::1"},
		{"192.0.2.1 other\n# 127.0.0.1 no\n\nnonsense\n127.0.0.1 localhost\n", "", ""},
		{"", "", ""},
	} {
		if name, address := loopbackName(tt.hosts); name != tt.name || address != tt.address {
			t.Errorf("%q: got %q, %q", tt.hosts, name, address)
		}
	}
}
