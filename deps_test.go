package main_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// module is the path that all import paths of this module begin with.
const module = "eggrun"

// mayImport says, for each folder, which folders of this module it may import,
// tests aside. A folder that is not listed is an error, so whoever adds one says
// here where it belongs.
//
// The order is that of trust and of purity: what decides (sandbox, policy, spec)
// imports nothing that touches the system, and the init process and the sidecar
// get nothing of what the host's side needs.
var mayImport = map[string][]string{
	".":                   {"check", "container", "egress", "init", "internal/linux", "internal/seccomp", "internal/state", "policy", "spec"},
	"sandbox":             {},
	"policy":              {"sandbox"},
	"spec":                {"policy", "sandbox"},
	"check":               {"egress", "egress/inside", "internal/linux", "policy", "spec"},
	"container":           {"egress", "egress/inside", "internal/hook", "internal/linux", "internal/seccomp", "internal/state", "internal/syncsocket", "policy", "sandbox", "spec"},
	"init":                {"egress/inside", "internal/hook", "internal/linux", "internal/seccomp", "internal/syncsocket", "policy", "sandbox", "spec"},
	"egress":              {"egress/inside", "egress/resolver", "internal/linux", "internal/seccomp", "internal/syncsocket", "policy", "proxy", "sandbox", "spec"},
	"egress/inside":       {"internal/linux", "policy", "sandbox"},
	"egress/resolver":     {"policy", "sandbox"},
	"proxy":               {"policy", "sandbox"},
	"internal/need":       {},
	"internal/hook":       {},
	"internal/linux":      {},
	"internal/seccomp":    {"sandbox"},
	"internal/state":      {"internal/linux"},
	"internal/syncsocket": {"egress/inside", "internal/linux", "internal/seccomp", "sandbox", "spec"},
	// Speaks with criu for container, as a program of its own.
	"criu": {"internal/linux", "internal/syncsocket"},
	// The integration tests know the command line only, as engines do.
	"integration": {},
	"demo/server": {},
	"bench":       {},
}

// folder is what "go list" says about a package of this module.
type folder struct {
	Dir, ImportPath, Name                     string
	GoFiles, CgoFiles, IgnoredGoFiles         []string
	TestGoFiles, XTestGoFiles                 []string
	Imports, TestImports, XTestImports, Match []string
}

// path is the folder below the module's root.
func (f *folder) path() string {
	if f.ImportPath == module {
		return "."
	}
	return strings.TrimPrefix(f.ImportPath, module+"/")
}

// sources are the files that are no tests, of every platform and build tag.
func (f *folder) sources() []string {
	all := slices.Concat(f.GoFiles, f.CgoFiles, f.IgnoredGoFiles)
	return slices.DeleteFunc(all, func(name string) bool { return strings.HasSuffix(name, "_test.go") })
}

// files are all files.
func (f *folder) files() []string {
	return slices.Concat(f.GoFiles, f.CgoFiles, f.IgnoredGoFiles, f.TestGoFiles, f.XTestGoFiles)
}

// parse returns the syntax of a file of the folder.
func (f *folder) parse(t *testing.T, set *token.FileSet, name string) *ast.File {
	t.Helper()
	file, err := parser.ParseFile(set, filepath.Join(f.Dir, name), nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// goList returns the output of "go list" with the build's tags.
func goList(t *testing.T, args ...string) []byte {
	t.Helper()
	args = append([]string{"list", "-tags", "netgo,osusergo,urfave_cli_no_docs"}, args...)
	out, err := exec.Command("go", args...).Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		t.Fatalf("go %v: %v: %s", args, err, exit.Stderr)
	}
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// folders are the packages of this module.
func folders(t *testing.T) []*folder {
	t.Helper()
	var all []*folder
	decoder := json.NewDecoder(strings.NewReader(string(goList(t, "-json", "./..."))))
	for {
		f := new(folder)
		err := decoder.Decode(f)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, f)
	}
}

func TestImportTable(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, f := range folders(t) {
		path := f.path()
		seen[path] = true
		allowed, listed := mayImport[path]
		if !listed {
			t.Errorf("%s is not in the import table", path)
			continue
		}
		imports := f.Imports
		if len(f.GoFiles) == 0 {
			imports = slices.Concat(f.TestImports, f.XTestImports)
		}
		for _, imported := range imports {
			other, ours := strings.CutPrefix(imported, module+"/")
			if ours && !slices.Contains(allowed, other) {
				t.Errorf("%s imports %s, which the import table does not allow", path, other)
			}
		}
	}
	for path := range mayImport {
		if !seen[path] {
			t.Errorf("the import table lists %s, which is no package", path)
		}
	}
}

// TestPackageNames: a package that is named for being useful collects whatever
// is left over.
func TestPackageNames(t *testing.T) {
	t.Parallel()
	for _, f := range folders(t) {
		if slices.Contains([]string{"util", "utils", "common", "helper", "helpers", "misc", "shared"}, f.Name) {
			t.Errorf("%s: package %s; name it for what it does", f.path(), f.Name)
		}
	}
}

// TestPackageDocs: every package has one comment that says what it is for.
func TestPackageDocs(t *testing.T) {
	t.Parallel()
	for _, f := range folders(t) {
		files := f.sources()
		if len(files) == 0 {
			files = f.files()
		}
		var documented []string
		for _, name := range files {
			if doc := f.parse(t, token.NewFileSet(), name).Doc; doc != nil && doc.Text() != "" {
				documented = append(documented, name)
			}
		}
		if len(documented) != 1 {
			t.Errorf("%s: package comments in %v, want one", f.path(), documented)
		}
	}
}

// TestInitprocName: a package cannot be imported as "init", so the one in that
// folder has one other name everywhere.
func TestInitprocName(t *testing.T) {
	t.Parallel()
	const name = "initproc"
	for _, f := range folders(t) {
		if f.path() == "init" && f.Name != name {
			t.Errorf("init: package %s, want %s", f.Name, name)
		}
		for _, file := range f.files() {
			for _, spec := range f.parse(t, token.NewFileSet(), file).Imports {
				if spec.Path.Value == `"`+module+`/init"` && spec.Name != nil && spec.Name.Name != name {
					t.Errorf("%s/%s: imports init as %s, want %s", f.path(), file, spec.Name.Name, name)
				}
			}
		}
	}
}

// TestUnsafe: whoever reviews what can corrupt memory finds it by file name.
func TestUnsafe(t *testing.T) {
	t.Parallel()
	for _, f := range folders(t) {
		for _, file := range f.files() {
			stem := strings.TrimSuffix(strings.TrimSuffix(file, ".go"), "_test")
			for _, spec := range f.parse(t, token.NewFileSet(), file).Imports {
				if spec.Path.Value == `"unsafe"` && !strings.HasSuffix(stem, "_unsafe") {
					t.Errorf("%s/%s: imports unsafe; move that to a file named *_unsafe.go", f.path(), file)
				}
			}
		}
	}
}

// mayExit are the functions outside of the main packages that end the process or
// use its standard streams, each with what it uses. DenyInit never returns, by
// its contract; the main functions of the processes that it can be have nobody
// else to tell an error; and once its limits and filters are set init can do
// nothing but leave.
var mayExit = map[string][]string{
	"init.DenyInit":      {"os.Exit"},
	"init.waitForStart":  {"os.Exit"},
	"init.awaitAnswer":   {"os.Exit"},
	"init.containerInit": {"os.Stderr"},
	"init.wrapperMain":   {"os.Stderr"},
}

// TestExitsAndPrints: only main prints or exits.
func TestExitsAndPrints(t *testing.T) {
	t.Parallel()
	used := map[string][]string{}
	for _, f := range folders(t) {
		if f.Name == "main" {
			continue
		}
		for _, name := range f.sources() {
			set := token.NewFileSet()
			for _, declaration := range f.parse(t, set, name).Decls {
				function := ""
				if d, ok := declaration.(*ast.FuncDecl); ok {
					function = f.path() + "." + d.Name.Name
				}
				for node, what := range exitsAndPrints(declaration) {
					if slices.Contains(mayExit[function], what) {
						used[function] = append(used[function], what)
						continue
					}
					t.Errorf("%s: %s outside of main", relative(set.Position(node)), what)
				}
			}
		}
	}
	for function, list := range mayExit {
		for _, what := range list {
			if !slices.Contains(used[function], what) {
				t.Errorf("%s no longer uses %s; drop it from mayExit", function, what)
			}
		}
	}
}

// exitsAndPrints returns what a declaration uses that only main may. A list of
// the standard streams, for a child process, is no use of them.
func exitsAndPrints(declaration ast.Decl) map[token.Pos]string {
	found := map[token.Pos]string{}
	listed := map[ast.Node]bool{}
	ast.Inspect(declaration, func(node ast.Node) bool {
		switch n := node.(type) {
		case *ast.CompositeLit:
			for _, element := range n.Elts {
				listed[element] = true
			}
		case *ast.SelectorExpr:
			name := fmt.Sprintf("%v.%s", n.X, n.Sel.Name)
			switch name {
			case "os.Stdout", "os.Stderr":
				if !listed[n] {
					found[n.Pos()] = name
				}
			case "os.Exit", "unix.Exit", "syscall.Exit", "fmt.Print", "fmt.Printf", "fmt.Println",
				"log.Print", "log.Printf", "log.Println", "log.Fatal", "log.Fatalf", "log.Fatalln":
				found[n.Pos()] = name
			}
		case *ast.CallExpr:
			if f, ok := n.Fun.(*ast.Ident); ok && (f.Name == "print" || f.Name == "println") {
				found[n.Pos()] = f.Name
			}
		}
		return true
	})
	return found
}

// relative is a position with the path from the module's root.
func relative(p token.Position) string {
	if root, err := filepath.Abs("."); err == nil {
		if path, err := filepath.Rel(root, p.Filename); err == nil {
			p.Filename = path
		}
	}
	return p.String()
}
