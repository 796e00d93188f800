package egress

import (
	"os"
	"path/filepath"
	"strings"

	"eggrun/sandbox"
)

// checkPasta refuses a network namespace into which pasta brings ports of the
// host. pasta then listens inside, on the loopback, which no rule can tell from a
// program of the container; with "auto" on whatever comes to listen outside, at any
// time. So it is asked how it was started.
func checkPasta(netNS *os.File) error {
	want, err := netNS.Stat()
	if err != nil {
		return err
	}
	brings, err := someProcess(func(dir string) bool {
		cmdline, err := os.ReadFile(filepath.Join(dir, "cmdline"))
		return err == nil && bringsPorts(strings.Split(string(cmdline), "\x00"), want)
	})
	if err != nil || !brings {
		return err
	}
	return &sandbox.EnforcementError{
		Gaps:     []string{"domains: pasta brings ports of the host into the network namespace"},
		Platform: "run without -T and -U in --network pasta, and name the ports in eggrun.local-ports",
	}
}

// bringsPorts tells whether argv is of a pasta that serves the network namespace
// and brings ports into it, as it does unless it is told otherwise, see -T and -U
// in pasta(1).
func bringsPorts(argv []string, netNS os.FileInfo) bool {
	if !strings.HasPrefix(filepath.Base(argv[0]), "pasta") {
		return false
	}
	serves := false
	for _, arg := range argv[1:] {
		serves = serves || namesNetNS(strings.TrimPrefix(arg, "--netns="), netNS)
	}
	return serves && !(isNone(argv, "-T", "--tcp-ns") && isNone(argv, "-U", "--udp-ns"))
}

// namesNetNS tells whether an argument of pasta is the path, the name or a
// process of the network namespace.
func namesNetNS(arg string, netNS os.FileInfo) bool {
	for _, path := range []string{arg, filepath.Join("/proc", arg, "ns/net"), filepath.Join("/run/netns", arg)} {
		if info, err := os.Stat(path); err == nil && os.SameFile(info, netNS) {
			return true
		}
	}
	return false
}

// isNone tells whether an option is there, by its short or its long name, always
// with the value "none".
func isNone(argv []string, short, long string) (none bool) {
	for i, arg := range argv {
		value, isOption := strings.CutPrefix(arg, long+"=")
		switch {
		case arg == short || arg == long:
			value, isOption = strings.Join(argv[i+1:min(i+2, len(argv))], ""), true
		case !isOption:
			value, isOption = strings.CutPrefix(arg, short)
		}
		if isOption && value != "none" {
			return false
		}
		none = none || isOption
	}
	return none
}
