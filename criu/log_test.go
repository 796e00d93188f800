package main

import (
	"os"
	"path/filepath"
	"testing"
)

func TestLoggedError(t *testing.T) {
	t.Parallel()
	const harmless = "(00.001391) Error (criu/util.c:1533): rlimit: Can't setup RLIMIT_NOFILE for self: Operation not permitted\n"
	for _, tt := range []struct{ name, log, want string }{
		{"none", "(00.1) cg: Writing CG image\n", ""},
		{"harmless", harmless, ""},
		{
			"cause and consequences",
			harmless + "(00.1) a line\n(00.2)      1: Error (criu/image.c:630): Unable to open tty-info.img: Permission denied\n" +
				"(00.3) Error (criu/cr-dump.c:1681): Dump files (pid: 7) failed with -1\n(00.4) Error (criu/cr-dump.c:2111): Dumping FAILED.\n",
			"Unable to open tty-info.img: EACCES; Dump files (pid: 7) failed with -1",
		},
		{
			"the last three",
			"Error (a:1): one\nError (a:1): two\nError (a:1): three: No such file or directory\nError (a:1): four\n",
			"two; three: ENOENT; four",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "dump.log")
			if err := os.WriteFile(path, []byte(tt.log), 0o600); err != nil {
				t.Fatal(err)
			}
			if got := loggedError(path); got != tt.want {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
	if got := loggedError("/nowhere"); got != "" {
		t.Errorf("%q of a log that is not there", got)
	}
}
