package check

import (
	"errors"
	"strings"
	"testing"
	"testing/fstest"

	"eggrun/policy"
)

// onHost is a checker that sees the files, variables and programs given.
func onHost(files, env map[string]string, there ...string) *checker {
	tree := fstest.MapFS{}
	for path, text := range files {
		tree[strings.TrimPrefix(path, "/")] = &fstest.MapFile{Data: []byte(text)}
	}
	return &checker{Options: Options{Exe: "/opt/eggrun"}, host: host{
		files:  tree,
		getenv: func(name string) string { return env[name] },
		lookPath: func(name string) (string, error) {
			for _, path := range there {
				if strings.HasSuffix(path, "/"+name) {
					return path, nil
				}
			}
			return "", errors.New("not found")
		},
		judge: func(path string) program {
			for _, one := range there {
				if one == path {
					return program{there: true, same: path == "/opt/eggrun"}
				}
			}
			return program{}
		},
		resolve: func(annotations map[string]string) error {
			_, err := policy.Resolve(policy.Request{Annotations: annotations})
			return err
		},
		uid: 1000,
	}}
}

// want compares what matters of a result: its status, and words in it.
func want(t *testing.T, r Result, status Status, cause, fix string) {
	t.Helper()
	if r.Status != status || !strings.Contains(r.Cause, cause) || !strings.Contains(r.Fix, fix) {
		t.Errorf("got %+v; want %s, cause %q, fix %q", r, status, cause, fix)
	}
	if (r.Fix == "") != (status == OK) {
		t.Errorf("got %+v: what is not ok has a fix, and nothing else", r)
	}
	if strings.Contains(r.Cause+r.Fix, "\n") {
		t.Errorf("got %+v: want one line each", r)
	}
}
