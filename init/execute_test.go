package initproc

import (
	"slices"
	"testing"
)

func TestReplaceVariables(t *testing.T) {
	t.Parallel()
	env := []string{"A=1", "B=2", "A=3", "AB=4"}
	for _, tt := range []struct{ variables, want []string }{
		{nil, env},
		{[]string{"A=5", "C="}, []string{"B=2", "AB=4", "A=5", "C="}},
	} {
		if got := replaceVariables(env, tt.variables); !slices.Equal(got, tt.want) {
			t.Errorf("%q: %q, want %q", tt.variables, got, tt.want)
		}
	}
	if !slices.Equal(env, []string{"A=1", "B=2", "A=3", "AB=4"}) {
		t.Errorf("the environment has changed: %q", env)
	}
}
