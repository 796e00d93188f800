package main_test

import (
	"bufio"
	"bytes"
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"eggrun/internal/need"
)

// The start of a process is paid for every create, init, start, delete and
// sidecar, so what the binary drags in has a budget: "eggrun --version" in at
// most 1.4 times the time of an empty static Go program.
//
// A test of that time would fail on a busy machine and teach everybody to run it
// again. What costs the time can be seen without a clock: package initialisation,
// of which a few libraries have most, and the size of the binary, which is read
// page by page. So these tests hold both down by name and by size, and print the
// rest for whoever wants to look:
//
//	go test -run Startup -v .

// forbidden are packages that must not be linked into the binary, by prefix of
// their path, with the reason.
var forbidden = map[string]string{
	"google.golang.org/protobuf":       "milliseconds of registration at each start",
	"google.golang.org/grpc":           "brings protobuf and tracing",
	"github.com/golang/protobuf":       "milliseconds of registration at each start",
	"github.com/gogo/protobuf":         "milliseconds of registration at each start",
	"github.com/prometheus":            "registers collectors at each start",
	"github.com/russross/blackfriday":  "only makes manual pages; build with the tag urfave_cli_no_docs",
	"github.com/cpuguy83/go-md2man":    "only makes manual pages; build with the tag urfave_cli_no_docs",
	"github.com/checkpoint-restore":    "belongs into a program of its own",
	"github.com/containerd/containerd": "is an engine",
	"k8s.io":                           "is an engine",
	"go.opentelemetry.io":              "initialises exporters at each start",
	"html/template":                    "nothing here writes HTML",
	"net/http/pprof":                   "registers handlers on a server that anybody might start",
	"expvar":                           "registers handlers on a server that anybody might start",
	"testing":                          "registers flags",
	"golang.org/x/net/trace":           "registers handlers on a server that anybody might start",
}

// maxBinary is far above today's size: it is here for the day on which a library
// doubles it.
const maxBinary = 16 << 20

func TestStartupPackages(t *testing.T) {
	t.Parallel()
	deps := strings.Fields(string(goList(t, "-deps", ".")))
	if !slices.Contains(deps, module+"/container") {
		t.Fatalf("%d packages, and package container is not one of them", len(deps))
	}
	for _, path := range deps {
		for prefix, reason := range forbidden {
			if path == prefix || strings.HasPrefix(path, prefix+"/") {
				t.Errorf("%s is linked into the binary: %s; find out why with: go mod why %[1]s", path, reason)
			}
		}
	}
}

func TestStartupBinary(t *testing.T) {
	t.Parallel()
	binary := built(t)
	info, err := os.Stat(binary)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("size: %d bytes", info.Size())
	if info.Size() > maxBinary {
		t.Errorf("%s has %d bytes, more than %d; look for what came in with: go version -m %[1]s", binary, info.Size(), maxBinary)
	}
	trace := traceInits(t, binary)
	var total initCost
	for _, one := range trace {
		total.clock += one.clock
		total.bytes += one.bytes
	}
	t.Logf("initialisation: %d packages, %.2f ms, %d bytes; the most by", len(trace), total.clock, total.bytes)
	slices.SortFunc(trace, func(a, b initCost) int { return cmp.Compare(b.clock, a.clock) })
	for _, one := range trace[:min(len(trace), 8)] {
		t.Logf("%8.3f ms %8d bytes  %s", one.clock, one.bytes, one.path)
	}
}

// built returns the binary that "make build" made.
func built(t *testing.T) string {
	t.Helper()
	path := filepath.Join("bin", "eggrun")
	need.That(t, "bin/eggrun, from make build", func() error {
		_, err := os.Stat(path)
		return err
	})
	return path
}

// initCost is what one package's initialisation took.
type initCost struct {
	path  string
	clock float64 // milliseconds
	bytes int
}

// traceInits returns the lines that GODEBUG=inittrace=1 makes the runtime print:
//
//	init PATH @0.1 ms, 0.02 ms clock, 96 bytes, 2 allocs
func traceInits(t *testing.T, binary string) []initCost {
	t.Helper()
	var stderr bytes.Buffer
	cmd := exec.Command(binary, "--version")
	cmd.Env = append(os.Environ(), "GODEBUG=inittrace=1")
	cmd.Stderr = &stderr
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	var costs []initCost
	for lines := bufio.NewScanner(&stderr); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) != 11 || fields[0] != "init" {
			continue
		}
		clock, clockErr := strconv.ParseFloat(fields[4], 64)
		size, sizeErr := strconv.Atoi(fields[7])
		if clockErr != nil || sizeErr != nil {
			t.Fatalf("line %q of GODEBUG=inittrace=1: a form that is not known", lines.Text())
		}
		costs = append(costs, initCost{fields[1], clock, size})
	}
	if len(costs) == 0 {
		t.Fatalf("GODEBUG=inittrace=1 prints nothing that is known: %q", stderr.String())
	}
	return costs
}
