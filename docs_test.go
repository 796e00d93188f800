package main_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// What the pages say about the code is compared with it here, so that they stay
// true, or whoever changes the code is told.

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// stringsIn returns the string literals that pick finds in the sources of a
// folder, in order.
func stringsIn(t *testing.T, dir string, pick func(ast.Node) []ast.Expr) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(node ast.Node) bool {
			for _, expr := range pick(node) {
				if literal, ok := expr.(*ast.BasicLit); ok && literal.Kind == token.STRING {
					text, err := strconv.Unquote(literal.Value)
					if err != nil {
						t.Fatal(err)
					}
					found = append(found, text)
				}
			}
			return true
		})
	}
	if len(found) == 0 {
		t.Fatalf("%s: nothing found; has the code changed its form?", dir)
	}
	return found
}

// TestHackingSteps: HACKING.md lists the steps of init.
func TestHackingSteps(t *testing.T) {
	t.Parallel()
	steps := stringsIn(t, "init", func(node ast.Node) []ast.Expr {
		spec, ok := node.(*ast.ValueSpec)
		if !ok || spec.Names[0].Name != "steps" {
			return nil
		}
		var names []ast.Expr
		for _, element := range spec.Values[0].(*ast.CompositeLit).Elts {
			names = append(names, element.(*ast.CompositeLit).Elts[0])
		}
		return names
	})
	want := strings.Join(steps, " → ")
	if !strings.Contains(strings.Join(strings.Fields(read(t, "HACKING.md")), " "), want) {
		t.Errorf("HACKING.md lacks init's steps, which are:\n%s", want)
	}
}

// TestHackingMap: HACKING.md lists the folders and the messages of the sync
// socket.
func TestHackingMap(t *testing.T) {
	t.Parallel()
	text := read(t, "HACKING.md")
	for folder := range mayImport {
		if folder != "." && folder != "demo/server" && !strings.Contains(text, "| `"+folder+"/` |") {
			t.Errorf("HACKING.md: the map lacks %s", folder)
		}
	}
	kinds := stringsIn(t, "internal/syncsocket", func(node ast.Node) []ast.Expr {
		spec, ok := node.(*ast.ValueSpec)
		if ident, isIdent := specType(spec); ok && isIdent && ident.Name == "Kind" {
			return spec.Values
		}
		return nil
	})
	for _, kind := range kinds {
		if !regexp.MustCompile(`(?m)^    .*\b` + kind + `\b`).MatchString(text) {
			t.Errorf("HACKING.md: the conversation lacks the message %q", kind)
		}
	}
}

func specType(spec *ast.ValueSpec) (*ast.Ident, bool) {
	if spec == nil {
		return nil, false
	}
	ident, ok := spec.Type.(*ast.Ident)
	return ident, ok
}

// fieldsOf returns the Name and Aliases of composite literals of a type that ends
// in suffix: commands and flags of the command line.
func fieldsOf(suffix string) func(ast.Node) []ast.Expr {
	return func(node ast.Node) []ast.Expr {
		literal, ok := node.(*ast.CompositeLit)
		if !ok {
			return nil
		}
		kind, ok := literal.Type.(*ast.SelectorExpr)
		if !ok || !strings.HasSuffix(kind.Sel.Name, suffix) {
			return nil
		}
		var found []ast.Expr
		for _, element := range literal.Elts {
			pair, ok := element.(*ast.KeyValueExpr)
			if !ok {
				continue
			}
			switch pair.Key.(*ast.Ident).Name {
			case "Name":
				found = append(found, pair.Value)
			case "Aliases":
				found = append(found, pair.Value.(*ast.CompositeLit).Elts...)
			}
		}
		return found
	}
}

// TestManual: the manual page has every verb and every option.
func TestManual(t *testing.T) {
	t.Parallel()
	page := read(t, "man/eggrun.8")
	for _, verb := range stringsIn(t, ".", fieldsOf("Command")) {
		if !strings.Contains(page, "\n.B "+verb+"\n") && !strings.Contains(page, "\n.BI "+verb+" ") && !strings.Contains(page, "\n.BR "+verb+" ") {
			t.Errorf("man/eggrun.8 lacks the verb %s", verb)
		}
	}
	for _, name := range stringsIn(t, ".", fieldsOf("Flag")) {
		option := `\-\-` + strings.ReplaceAll(name, "-", `\-`)
		if len(name) == 1 {
			option = `\-` + name
		}
		if !regexp.MustCompile(regexp.QuoteMeta(option) + `(\s|"|,|$)`).MatchString(page) {
			t.Errorf("man/eggrun.8 lacks the option --%s, written %s", name, option)
		}
	}
}
