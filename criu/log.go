package main

import (
	"bufio"
	"io"
	"os"
	"strings"
)

// loggedError returns the first error in one of criu's logs, "" for none.
func loggedError(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	return firstError(f)
}

// firstError returns the first error among what criu has written, of which the
// others follow: "(00.01) Error (criu/mount.c:7): mnt: what happened".
func firstError(said io.Reader) string {
	for lines := bufio.NewScanner(said); lines.Scan(); {
		_, after, ok := strings.Cut(lines.Text(), "Error (")
		if !ok {
			continue
		}
		if _, text, ok := strings.Cut(after, "): "); ok {
			return errnoNames.Replace(strings.TrimSpace(text))
		}
	}
	return ""
}

// errnoNames replaces those words of the C library that engines take for what
// happened to the container's own program.
var errnoNames = strings.NewReplacer(
	"No such file or directory", "ENOENT",
	"Permission denied", "EACCES",
	"Operation not permitted", "EPERM",
)
