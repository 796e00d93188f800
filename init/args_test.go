package initproc

import (
	"reflect"
	"strings"
	"testing"
)

func TestParseArgs(t *testing.T) {
	t.Parallel()
	full := &wrapperArgs{
		uid: 1000, gid: 100, log: "log",
		deny: []string{"/a", "/b c"}, denyWrite: []string{"/d", "/e"},
		home:    home{dir: "/h", writable: []string{"/h/w", "/h/x"}},
		command: []string{"cmd", "--uid", "--", "x"},
	}
	for _, tt := range []struct {
		name    string
		args    []string
		want    *wrapperArgs
		wantErr string
	}{
		{"everything", []string{
			"--uid", "1000", "--gid", "100", "--log", "log", "--deny", "/a", "--deny", "/b c", "--deny-write", "/d",
			"--home", "/h", "--writable", "/h/w", "--deny-write", "/e/", "--writable", "//h/./x", "--", "cmd", "--uid", "--", "x",
		}, full, ""},
		{"last wins", ids("--uid", "7", "--home", "/x", "--home", "/h", "--", "c"),
			&wrapperArgs{uid: 7, gid: 2, home: home{dir: "/h"}, command: []string{"c"}}, ""},
		{"largest id", []string{"--uid", "4294967294", "--gid", "0", "--", "c"},
			&wrapperArgs{uid: 4294967294, command: []string{"c"}}, ""},

		{"nothing", nil, nil, "no command; end the options with -- CMD ARGS"},
		{"no separator", ids("cmd"), nil, "no command; end the options with -- CMD ARGS"},
		{"no command", ids("--"), nil, "no command; end the options with -- CMD ARGS"},
		{"option swallows the separator", ids("--deny", "--", "cmd"), nil, "option --deny: no value before --"},
		{"empty value", ids("--home", "", "--", "cmd"), nil, "option --home: no value before --"},
		{"unknown option", ids("--denyy", "/a", "--", "cmd"), nil, `unknown option "--denyy"`},
		{"unknown option without a value", ids("--verbose", "--", "cmd"), nil, "option --verbose: no value before --"},
		{"value as an option", ids("--deny", "/a", "/b", "/c", "--", "cmd"), nil, `unknown option "/b"`},
		{"equals sign", ids("--deny=/a", "/b", "--", "cmd"), nil, `unknown option "--deny=/a"`},
		{"uid is a name", []string{"--uid", "root", "--gid", "1", "--", "cmd"}, nil,
			`option --uid: "root" is not an id; use a number from 0 to 4294967294`},
		{"gid negative", ids("--gid", "-1", "--", "cmd"), nil, `option --gid: "-1" is not an id; use a number from 0 to 4294967294`},
		{"uid is no id", ids("--uid", "4294967295", "--", "cmd"), nil,
			`option --uid: "4294967295" is not an id; use a number from 0 to 4294967294`},
		{"uid overflows to 0", ids("--uid", "4294967296", "--", "cmd"), nil,
			`option --uid: "4294967296" is not an id; use a number from 0 to 4294967294`},
		{"uid missing", []string{"--gid", "1", "--", "cmd"}, nil, "option --uid is missing"},
		{"gid missing", []string{"--uid", "1", "--", "cmd"}, nil, "option --gid is missing"},
		{"relative", ids("--deny", "a", "--", "cmd"), nil, `option --deny: "a" is not absolute`},
		{"tilde", ids("--deny-write", "~/a", "--", "cmd"), nil, `option --deny-write: "~/a" is not absolute`},
		{"option as a path", ids("--home", "--writable", "--", "cmd"), nil, `option --home: "--writable" is not absolute`},
		{"up", ids("--deny", "/a/../b", "--", "cmd"), nil, `option --deny: "/a/../b" goes up by ".."; name the path itself`},
		{"up at the end", ids("--writable", "/a/..", "--", "cmd"), nil, `option --writable: "/a/.." goes up by ".."; name the path itself`},
		{"hole without a home", ids("--writable", "/a", "--", "cmd"), nil, "option --writable: opens a hole in --home, which is missing"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := parseArgs(tt.args)
			if text := errorText(err); text != tt.wantErr || !reflect.DeepEqual(got, tt.want) {
				t.Errorf("parseArgs(%q) = %+v, %q, want %+v, %q", tt.args, got, text, tt.want, tt.wantErr)
			}
		})
	}
}

// ids puts the two obligatory options before args.
func ids(args ...string) []string { return append([]string{"--uid", "1", "--gid", "2"}, args...) }

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// TestArgumentsRefused is that of the seed: what it skipped or took for 0 must
// not start the command.
func TestArgumentsRefused(t *testing.T) {
	t.Parallel()
	l := sh(nsUser(), "echo started")
	l.caller.need(t)
	l.mustPrint(t, "started\n")
	l.with("--bogus", "x").mustRefuse(t, `unknown option "--bogus"`)
	l.with("--deny").mustRefuse(t, "option --deny: no value before --")
	l.with("--uid", "nobody").mustRefuse(t, `option --uid: "nobody" is not an id; use a number from 0 to 4294967294`)
	l.command = nil
	l.mustRefuse(t, "no command; end the options with -- CMD ARGS")
}

func TestParseReap(t *testing.T) {
	t.Parallel()
	for _, args := range []string{
		"", "--reap-own-group 3 -- path", "--reap-own-group x -- path argv0", "--reap-own-group 2 -- path argv0",
		"--reap-own-group 3 path argv0 --", "--uid 0 -- path argv0", "--sync 3",
	} {
		if r, ok := parseReap(strings.Fields(args)); ok {
			t.Errorf("parseReap(%q) = %+v, want none", args, r)
		}
	}
}
