package main

import (
	"bufio"
	"io"
	"os"
	"strings"
)

// loggedError returns the last errors in one of criu's logs, "" for none. What
// went wrong is followed by what could not be done for it, and may come after
// others that did no harm.
func loggedError(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	all := errorsIn(f)
	const last = 3
	return strings.Join(all[max(0, len(all)-last):], "; ")
}

// firstError returns the first error among what criu said before it had a log.
func firstError(said io.Reader) string {
	if all := errorsIn(said); len(all) > 0 {
		return all[0]
	}
	return ""
}

// errorsIn finds criu's errors: "(00.01) Error (criu/mount.c:7): mnt: no such".
func errorsIn(said io.Reader) (all []string) {
	for lines := bufio.NewScanner(said); lines.Scan(); {
		_, after, ok := strings.Cut(lines.Text(), "Error (")
		if !ok {
			continue
		}
		_, text, ok := strings.Cut(after, "): ")
		// One that does no harm, and one that says nothing.
		isNews := !strings.Contains(text, "RLIMIT_NOFILE for self") && !strings.HasSuffix(text, "FAILED.")
		if ok && isNews {
			all = append(all, errnoNames.Replace(strings.TrimSpace(text)))
		}
	}
	return all
}

// errnoNames replaces those words of the C library that engines take for what
// happened to the container's own program.
var errnoNames = strings.NewReplacer(
	"No such file or directory", "ENOENT",
	"Permission denied", "EACCES",
	"Operation not permitted", "EPERM",
)
