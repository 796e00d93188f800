package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// FuzzSetUser: what is taken for a user says exactly that user.
func FuzzSetUser(f *testing.F) {
	for _, seed := range []string{"0", "1000", "1000:1000", "0:", ":0", "1000:x", " 1", "+1", "0x0", "4294967295", "4294967294:4294967296", "1:2:3", "１"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		const before = 12345
		u := specs.User{UID: before, GID: before}
		if err := setUser(&u, text, nil); err != nil || text == "" {
			return
		}
		uid, gid, hasGID := strings.Cut(text, ":")
		if trim(uid) != fmt.Sprint(u.UID) || hasGID && trim(gid) != fmt.Sprint(u.GID) || !hasGID && u.GID != before {
			t.Errorf("%q became %d:%d", text, u.UID, u.GID)
		}
	})
}

// trim takes leading zeros away, which mean nothing.
func trim(number string) string {
	if trimmed := strings.TrimLeft(number, "0"); trimmed != "" {
		return trimmed
	}
	return "0"
}
