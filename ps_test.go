package main

import (
	"fmt"
	"testing"
)

func TestRowsOf(t *testing.T) {
	t.Parallel()
	const table = "UID        PID  PPID CMD\nroot         1     0 init\nroot        12     1 12 13\nroot        13    12 x\n\n"
	for _, tt := range []struct {
		name, table string
		pids        []int
		want        string
	}{
		{"none", table, nil, "UID        PID  PPID CMD\n"},
		{"some", table, []int{13, 1, 99}, "UID        PID  PPID CMD\nroot         1     0 init\nroot        13    12 x\n"},
		{"column of the pid only", table, []int{12}, "UID        PID  PPID CMD\nroot        12     1 12 13\n"},
		{"last column", "TTY PID\n? 5\n? 6", []int{6}, "TTY PID\n? 6\n"},
	} {
		got, err := rowsOf(tt.table, tt.pids)
		if got != tt.want || err != nil {
			t.Errorf("%s: %q, %v, want %q", tt.name, got, err, tt.want)
		}
	}
	for _, tt := range []struct{ table, want string }{
		{"", `program ps: no column PID in ""; ask ps for it`},
		{"PPID\n1\n", `program ps: no column PID in "PPID"; ask ps for it`},
		{"STARTED PID\nSat Nov 28 5\n", `program ps: column PID of "Sat Nov 28 5": not a number; ask ps for it first`},
		{"UID PID\nroot\n", `program ps: no column PID in "root"`},
	} {
		_, err := rowsOf(tt.table, []int{1})
		if fmt.Sprint(err) != tt.want {
			t.Errorf("%q: error %v, want %s", tt.table, err, tt.want)
		}
	}
}
