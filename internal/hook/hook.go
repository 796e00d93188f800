// Package hook runs the hooks of config.json, on the host's side and inside.
package hook

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// Run runs the hooks of one kind in their order, each with state as JSON on its
// standard input, until one fails. A hook's environment is what config.json
// gives it and nothing else: it inherits no secret of the caller.
//
// The error names the hook and has the last line that it wrote to stderr.
func Run(kind string, hooks []specs.Hook, state *specs.State) error {
	return RunIn("", kind, hooks, state)
}

// RunIn is [Run] with dir as the hooks' working directory, "" for the caller's.
func RunIn(dir, kind string, hooks []specs.Hook, state *specs.State) error {
	if errs := run(dir, kind, hooks, state, true); len(errs) > 0 {
		return errs[0]
	}
	return nil
}

// RunAll is [Run] for hooks whose failure keeps no other from running. It
// returns an error for each that failed.
func RunAll(kind string, hooks []specs.Hook, state *specs.State) []error {
	return run("", kind, hooks, state, false)
}

func run(dir, kind string, hooks []specs.Hook, state *specs.State, untilError bool) (errs []error) {
	if len(hooks) == 0 {
		return nil
	}
	input, err := json.Marshal(state)
	if err != nil {
		return []error{err}
	}
	for i := range hooks {
		err := runOne(dir, &hooks[i], input)
		if err == nil {
			continue
		}
		errs = append(errs, fmt.Errorf("%s hook #%d %q: %w", kind, i, hooks[i].Path, err))
		if untilError {
			break
		}
	}
	return errs
}

func runOne(dir string, h *specs.Hook, input []byte) error {
	ctx := context.Background()
	if h.Timeout != nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(*h.Timeout)*time.Second)
		defer cancel()
	}
	stderr := tail{most: 4096}
	cmd := exec.CommandContext(ctx, h.Path)
	cmd.Args = h.Args
	if len(cmd.Args) == 0 {
		cmd.Args = []string{h.Path}
	}
	cmd.Dir = dir
	cmd.Env = h.Env
	if cmd.Env == nil {
		cmd.Env = []string{} // nil would mean this process's own
	}
	cmd.Stdin = bytes.NewReader(input)
	cmd.Stderr = &stderr
	// A hook that leaves a process behind with its stderr must not hold us up.
	cmd.WaitDelay = time.Second
	err := cmd.Run()
	switch {
	case err == nil, errors.Is(err, exec.ErrWaitDelay),
		// It need not read its input.
		errors.Is(err, syscall.EPIPE):
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("no end after %d s", *h.Timeout)
	}
	if line := lastLine(string(stderr.kept)); line != "" {
		return fmt.Errorf("%w: %s", err, line)
	}
	return err
}

// tail keeps the last bytes that were written to it.
type tail struct {
	most int
	kept []byte
}

func (t *tail) Write(data []byte) (int, error) {
	t.kept = append(t.kept, data...)
	t.kept = t.kept[max(0, len(t.kept)-t.most):]
	return len(data), nil
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.TrimSpace(lines[len(lines)-1])
}
