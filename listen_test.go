package main

import (
	"os"
	"strconv"
	"testing"
)

func TestListenFDs(t *testing.T) {
	t.Parallel()
	own := strconv.Itoa(os.Getpid())
	for _, test := range []struct {
		env   map[string]string
		want  int
		names string
		err   string
	}{
		{map[string]string{}, 0, "", ""},
		{map[string]string{"LISTEN_FDS": "2"}, 0, "", ""},
		{map[string]string{"LISTEN_FDS": "2", "LISTEN_PID": "1" + own}, 0, "", ""},
		{map[string]string{"LISTEN_FDS": "x", "LISTEN_PID": "1" + own}, 0, "", ""},
		{map[string]string{"LISTEN_FDS": "2", "LISTEN_PID": own, "LISTEN_FDNAMES": "a:b"}, 2, "a:b", ""},
		{map[string]string{"LISTEN_PID": own}, 0, "", `LISTEN_FDS "": want 0 to 65536`},
		{map[string]string{"LISTEN_FDS": "-1", "LISTEN_PID": own}, 0, "", `LISTEN_FDS "-1": want 0 to 65536`},
		{map[string]string{"LISTEN_FDS": "65537", "LISTEN_PID": own}, 0, "", `LISTEN_FDS "65537": want 0 to 65536`},
	} {
		count, names, err := listenFDs(func(name string) string { return test.env[name] })
		text := ""
		if err != nil {
			text = err.Error()
		}
		if count != test.want || names != test.names || text != test.err {
			t.Errorf("%v: got %d, %q, %q, want %d, %q, %q", test.env, count, names, text, test.want, test.names, test.err)
		}
	}
}
