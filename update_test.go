package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"
)

func TestParseSize(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		in   string
		want int64
		err  error
	}{
		{"0", 0, nil}, {"-1", -1, nil}, {"1", 1, nil}, {"67108864", 64 << 20, nil}, {"9223372036854775807", 1<<63 - 1, nil},
		{"64M", 64 << 20, nil}, {"64m", 64 << 20, nil}, {"64 m", 64 << 20, nil}, {"64mb", 64 << 20, nil}, {"64MiB", 64 << 20, nil},
		{"1.5k", 1536, nil}, {"2g", 2 << 30, nil}, {"2t", 2 << 40, nil}, {"2p", 2 << 50, nil}, {"7b", 7, nil}, {"1.5", 1, nil},
		{"9223372036854775808", 0, strconv.ErrRange}, {"9000p", 0, strconv.ErrRange},
		{"", 0, strconv.ErrSyntax}, {"-2", 0, strconv.ErrSyntax}, {"m", 0, strconv.ErrSyntax}, {"1x", 0, strconv.ErrSyntax},
		{"1kk", 0, strconv.ErrSyntax}, {"1mx", 0, strconv.ErrSyntax}, {"1ib", 0, strconv.ErrSyntax}, {"1bb", 0, strconv.ErrSyntax}, {"1i", 0, strconv.ErrSyntax},
		{"1e3", 0, strconv.ErrSyntax}, {"0x10", 0, strconv.ErrSyntax}, {"inf", 0, strconv.ErrSyntax}, {"nan", 0, strconv.ErrSyntax}, {"1.2.3k", 0, strconv.ErrSyntax}, {"1  m", 0, strconv.ErrSyntax},
	} {
		got, err := parseSize(tt.in)
		if got != tt.want || !errors.Is(err, tt.err) {
			t.Errorf("%q: %d, error %v, want %d, %v", tt.in, got, err, tt.want, tt.err)
		}
	}
}

func TestLimitsOfFlags(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ args, want, err string }{
		{"", `{"memory":{},"cpu":{},"pids":{},"blockIO":{}}`, ""},
		{"--memory= --cpu-quota= --pids-limit=", `{"memory":{},"cpu":{},"pids":{},"blockIO":{}}`, ""},
		{
			"--memory 64m --memory-reservation 1k --memory-swap -1 --kernel-memory 1 --kernel-memory-tcp x --pids-limit 0 --blkio-weight 500",
			`{"memory":{"limit":67108864,"reservation":1024,"swap":-1},"cpu":{},"pids":{"limit":0},"blockIO":{"weight":500}}`, "",
		},
		{
			"--cpu-share 1 --cpu-quota -1 --cpu-burst 0 --cpu-period 2 --cpu-rt-runtime 3 --cpu-rt-period 4 --cpuset-cpus 0-1,3 --cpuset-mems 0 --cpu-idle 1",
			`{"memory":{},"cpu":{"shares":1,"quota":-1,"burst":0,"period":2,"realtimeRuntime":3,"realtimePeriod":4,"cpus":"0-1,3","mems":"0","idle":1},"pids":{},"blockIO":{}}`, "",
		},
		{"--memory 64x", "", `option --memory "64x": want a number`},
		{"--memory 9000p", "", `option --memory "9000p": out of range`},
		{"--cpu-share -1", "", `option --cpu-share "-1": want a number`},
		{"--cpu-idle yes", "", `option --cpu-idle "yes": want a number`},
		{"--pids-limit 1k", "", `option --pids-limit "1k": want a number`},
		{"--blkio-weight 65536", "", `option --blkio-weight "65536": out of range`},
	} {
		var got []byte
		app := &cli.App{Flags: updateCommand.Flags, Action: func(c *cli.Context) error {
			resources, err := givenLimits(c)
			if err == nil {
				got, err = json.Marshal(resources)
			}
			return err
		}, ExitErrHandler: func(*cli.Context, error) {}}
		err := app.Run(append([]string{"update"}, strings.Fields(tt.args)...))
		if tt.err == "" && err == nil && string(got) == tt.want {
			continue
		}
		if tt.err == "" || fmt.Sprint(err) != tt.err {
			t.Errorf("%s: %s, error %v, want %s %s", tt.args, got, err, tt.want, tt.err)
		}
	}
}

func TestReadLimits(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ in, want string }{
		{`{"pids":{"limit":7}}`, "<nil>"},
		{`{"pids":null,"more":{}}` + "\n", "<nil>"},
		{"", `resources "file": empty, want JSON`},
		{`{"pids":`, `resources "file": unexpected EOF`},
		{`{"pids":7}`, `resources "file": json: cannot unmarshal number into Go struct field LinuxResources.pids of type specs.LinuxPids`},
	} {
		_, err := readLimits(strings.NewReader(tt.in), "file")
		if fmt.Sprint(err) != tt.want {
			t.Errorf("%q: error %v, want %s", tt.in, err, tt.want)
		}
	}
}
