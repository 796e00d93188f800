package main

import (
	"math"
	"runtime/debug"
	"testing"
)

// TestMemoryIsBounded: events goes on as long as its container does, with the
// collector off it would need 100 kB more each time.
func TestMemoryIsBounded(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(100))
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(math.MaxInt64))
	if status := run([]string{"eggrun", "--version"}); status != 0 {
		t.Errorf("exit status %d", status)
	}
	if limit := debug.SetMemoryLimit(-1); limit > memoryLimit {
		t.Errorf("a limit of %d bytes", limit)
	}
}
