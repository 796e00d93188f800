package integration

import (
	"bufio"
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// need skips the test with the reason when probe says that the machine lacks
// what. With EGGRUN_MUST_WORK=1 that is a failure, unless impossible.txt lists
// the test; and a listed test that could run is a failure too, for then the
// list is out of date.
func need(t *testing.T, what string, probe func() error) {
	t.Helper()
	mustWork := os.Getenv("EGGRUN_MUST_WORK") == "1"
	reason, listed := impossible(t)
	err := probe()
	switch verdict(err, mustWork, listed) {
	case runs:
	case runsThoughListed: // unless another need still skips it
		t.Cleanup(func() {
			if !t.Skipped() {
				t.Errorf("impossible.txt lists this test (%s), but it ran; remove the line", reason)
			}
		})
	case fails:
		t.Fatalf("needs %s: %v", what, err)
	case skips:
		t.Skipf("needs %s: %v %s", what, err, reason)
	}
}

// outcome is what becomes of a test that needs something.
type outcome int

const (
	runs outcome = iota
	runsThoughListed
	skips
	fails
)

func verdict(probeErr error, mustWork, listed bool) outcome {
	switch {
	case probeErr == nil && mustWork && listed:
		return runsThoughListed
	case probeErr == nil:
		return runs
	case mustWork && !listed:
		return fails
	default:
		return skips
	}
}

func TestNeedVerdict(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		err              error
		mustWork, listed bool
		want             outcome
	}{
		{nil, false, false, runs}, {nil, false, true, runs}, {nil, true, false, runs}, {nil, true, true, runsThoughListed},
		{os.ErrNotExist, false, false, skips}, {os.ErrNotExist, false, true, skips}, {os.ErrNotExist, true, true, skips}, {os.ErrNotExist, true, false, fails},
	} {
		equal(t, fmt.Sprintf("verdict of %v, must work %v, listed %v", tt.err, tt.mustWork, tt.listed), verdict(tt.err, tt.mustWork, tt.listed), tt.want)
	}
}

// needRoot is for everything that makes containers as root.
func needRoot(t *testing.T) {
	t.Helper()
	need(t, "root", func() error {
		if os.Geteuid() != 0 {
			return os.ErrPermission
		}
		return nil
	})
}

// controllers tells whether the cgroups that this machine shows have all of the
// controllers, by their names in v2. There one may still be of v1.
func controllers(names ...string) func() error {
	return func() error {
		available, err := os.ReadFile(filepath.Join(cgroupRoot, "cgroup.controllers"))
		if err == nil {
			for _, name := range names {
				if !slices.Contains(strings.Fields(string(available)), name) {
					return fmt.Errorf("cgroup v2 has %q", strings.TrimSpace(string(available)))
				}
			}
			return nil
		}
		for _, name := range names {
			if name == "io" {
				name = "blkio"
			}
			if _, err := os.Stat(filepath.Join(cgroupRoot, name, "cgroup.procs")); err != nil {
				return err
			}
		}
		return nil
	}
}

// needControllers is for limits.
func needControllers(t *testing.T, names ...string) {
	t.Helper()
	need(t, "cgroup controllers "+strings.Join(names, ", "), controllers(names...))
}

// eggrunOnly skips what runc and others do not promise.
func eggrunOnly(t *testing.T) runtimeUnderTest {
	t.Helper()
	needRoot(t)
	if !suite.runtime.isEggrun() {
		t.Skipf("only eggrun promises this; the runtime under test is %s", suite.runtime.name)
	}
	reason, known := deviations[suite.runtime.name][t.Name()]
	skipKnown(t, suite.runtime, reason, known)
	return suite.runtime
}

// place is where the suite runs, as impossible.txt names it.
func place() string { return cmp.Or(os.Getenv("EGGRUN_TEST_PLACE"), "host") }

// placesOfCI are all places where CI runs the suite or a part of it.
var placesOfCI = []string{"host", "v2", "v1", "emulated"}

// impossibleTest is a line of impossible.txt.
type impossibleTest struct {
	places       []string
	name         string
	why, instead string
}

var impossibleLine = regexp.MustCompile(`^([a-z0-9,]+) (Test[A-Za-z0-9_]+(?:/[^:]+)?): ([^;]+); (.+)$`)

// impossible returns what impossible.txt says, for this place, about the test
// or one of the tests it is a part of.
func impossible(t *testing.T) (reason string, listed bool) {
	t.Helper()
	for _, one := range readImpossible(t) {
		if slices.Contains(one.places, place()) && (t.Name() == one.name || strings.HasPrefix(t.Name(), one.name+"/")) {
			return one.why + "; " + one.instead, true
		}
	}
	return "", false
}

func readImpossible(t *testing.T) []impossibleTest {
	t.Helper()
	file, err := os.Open("impossible.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	var list []impossibleTest
	for lines := bufio.NewScanner(file); lines.Scan(); {
		line := lines.Text()
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		match := impossibleLine.FindStringSubmatch(line)
		if match == nil {
			t.Fatalf("impossible.txt: line %q: want \"place,… TestName: why; where it runs instead\"", line)
		}
		list = append(list, impossibleTest{strings.Split(match[1], ","), match[2], match[3], match[4]})
	}
	return list
}

// TestImpossibleNames keeps impossible.txt free of tests that are gone, and of
// tests that would run nowhere: where one of CI's places is named, the test must
// not be impossible there, too.
func TestImpossibleNames(t *testing.T) {
	t.Parallel()
	sources := testSources(t)
	impossibleAt := map[string]bool{}
	for _, one := range readImpossible(t) {
		for _, where := range one.places {
			impossibleAt[where+" "+one.name] = true
		}
	}
	for _, one := range readImpossible(t) {
		function, _, _ := strings.Cut(one.name, "/")
		if !strings.Contains(sources, "func "+function+"(t *testing.T)") {
			t.Errorf("impossible.txt lists %s, but there is no such test", one.name)
		}
		for _, where := range one.places {
			if !slices.Contains(placesOfCI, where) {
				t.Errorf("impossible.txt, %s: place %q: want one of %v", one.name, where, placesOfCI)
			}
		}
		if slices.Contains(placesOfCI, one.instead) && (impossibleAt[one.instead+" "+one.name] || impossibleAt[one.instead+" "+function]) {
			t.Errorf("impossible.txt has %s run in place %q, where it is impossible", one.name, one.instead)
		}
	}
}

// testSources returns the text of all test files.
func testSources(t *testing.T) string {
	t.Helper()
	entries, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, entry := range entries {
		if strings.HasSuffix(entry.Name(), "_test.go") {
			data, err := os.ReadFile(entry.Name())
			if err != nil {
				t.Fatal(err)
			}
			all.Write(data)
		}
	}
	return all.String()
}
