package main

import (
	"strings"
	"testing"
)

func TestFlagsFirst(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ in, want string }{
		{"", ""},
		{"--version", "--version"},
		{"--root /r", "--root /r"},
		{"list", "list"},
		{"state c1", "state c1"},
		{"update c1 --memory 1g", "update --memory 1g c1"},
		{"update c1 --cpu-quota -1 --pids-limit=-1", "update --cpu-quota -1 --pids-limit=-1 c1"},
		{"update --resources - c1", "update --resources - c1"},
		{"update c1 -r -", "update -r - c1"},
		{"update -r=- c1", "update -r=- c1"},
		{"--root /r --debug update c1 --memory 1g", "--root /r --debug update --memory 1g c1"},
		{"--root=/r update c1 -memory 1g", "--root=/r update -memory 1g c1"},
		{"delete c1 --force", "delete --force c1"},
		{"kill c1 9 --all", "kill --all c1 9"},
		{"kill -a c1 9", "kill -a c1 9"},
		{"kill c1 -- -9", "kill -- c1 -9"},
		{"kill -- c1 --all", "kill -- c1 --all"},
		{"create c1 --bundle /b --no-pivot", "create --bundle /b --no-pivot c1"},
		{"create c1 --bundle", "create --bundle c1"},
		{"update c1 --nosuch x", "update --nosuch c1 x"},
		{"nosuch c1 --force", "nosuch c1 --force"},
		// These have another program's options.
		{"ps c1 -ef", "ps c1 -ef"},
		{"ps --format json c1", "ps --format json c1"},
		{"exec c1 sh -c x", "exec c1 sh -c x"},
		{"--root /r exec -t c1 ls --all", "--root /r exec -t c1 ls --all"},
		{"policy explain /b --egress-profile ci", "policy explain --egress-profile ci /b"},
		// The shell's completion wants its flag to stay last.
		{"kill c --generate-bash-completion", "kill c --generate-bash-completion"},
	} {
		args := append([]string{"eggrun"}, strings.Fields(tt.in)...)
		given := strings.Join(args, " ")
		got := strings.Join(flagsFirst(newApp(&errorLog{}), args)[1:], " ")
		if got != tt.want {
			t.Errorf("%s: got %s, want %s", tt.in, got, tt.want)
		}
		if strings.Join(args, " ") != given {
			t.Errorf("%s: changed to %v", tt.in, args)
		}
	}
	if got := flagsFirst(newApp(&errorLog{}), nil); got != nil {
		t.Errorf("nothing: %v", got)
	}
}
