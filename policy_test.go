package main

import (
	"strings"
	"testing"

	"eggrun/policy"
)

// TestPrintPolicy has a path with what a terminal would obey.
func TestPrintPolicy(t *testing.T) {
	t.Parallel()
	p := &policy.Policy{Profile: "ci", Origins: []policy.Origin{
		{Key: "deny", Value: "/a\x1b]0;b\a c", From: "annotation"}, {Key: "peers", From: "default"},
	}}
	for _, tt := range []struct {
		p    *policy.Policy
		want string
	}{
		{p, "profile  ci          \ndeny     /a\ufffd]0;b\ufffd c  annotation\npeers    -           default\n"},
		{nil, "not walled in: it reaches what its network namespace reaches\n"},
	} {
		var out strings.Builder
		if err := printPolicy(&out, tt.p); err != nil || out.String() != tt.want {
			t.Errorf("%q, error %v, want %q", out.String(), err, tt.want)
		}
	}
}
