package spec

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestDecode(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ name, data, wantErr string }{
		{"empty object", `{}`, ""},
		{"unknown fields", `{"ociVersion": "", "a": {"b": [1]}, "process": {"c": null}}`, ""},
		{"white space", " \n{\t}\n\n", ""},
		{"empty", ``, `parse "config.json": line 1: column 0: unexpected end of JSON input`},
		{"null", `null`, `parse "config.json": is null, want an object`},
		{"array", `[]`, `parse "config.json": line 1: column 1: the document: is array, want object`},
		{"broken", "{\n \"root\": {\n  \"path\": \"a\",\n }\n}", `parse "config.json": line 4: column 2: invalid character '}' looking for beginning of object key string`},
		{"cut", "{\n \"root\": {", `parse "config.json": line 2: column 10: unexpected end of JSON input`},
		{"trailing", "{}\n{}", `parse "config.json": line 2: column 1: invalid character '{' after top-level value`},
		{"trailing word", "{}x", `parse "config.json": line 1: column 3: invalid character 'x' after top-level value`},
		{"type", "{\n \"process\": {\"args\": \"sh\"}}", `parse "config.json": line 2: column 25: process.args: is string, want array`},
		{"range", `{"process": {"user": {"uid": -1}}}`, `parse "config.json": line 1: column 31: process.user.uid: is number -1, want uint32`},
		{"pointer", `{"process": {"oomScoreAdj": "1"}}`, `parse "config.json": line 1: column 31: process.oomScoreAdj: is string, want int`},
	} {
		config, err := Decode([]byte(test.data))
		if test.wantErr == "" {
			if err != nil || config == nil {
				t.Errorf("%s: got %v, %v", test.name, config, err)
			}
			continue
		}
		if config != nil || err == nil || err.Error() != test.wantErr {
			t.Errorf("%s: got %v, %v\nwant %s", test.name, config, err, test.wantErr)
		}
	}
	if _, err := DecodeProcess("/p.json", []byte("{")); err == nil || !strings.HasPrefix(err.Error(), `parse "/p.json": line 1`) {
		t.Errorf("process: got %v", err)
	}
	if process, err := DecodeProcess("/p.json", []byte(`{"cwd": "/"}`)); err != nil || process.Cwd != "/" {
		t.Errorf("process: got %v, %v", process, err)
	}
}

func TestLoad(t *testing.T) {
	t.Parallel()
	bundle := func(t *testing.T, create func(path string) error) string {
		dir := t.TempDir()
		if err := create(filepath.Join(dir, "config.json")); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	write := func(size int64) func(string) error {
		return func(path string) error {
			if err := os.WriteFile(path, []byte(`{"hostname": "a"}`), 0o600); err != nil {
				return err
			}
			return os.Truncate(path, size)
		}
	}
	for _, test := range []struct {
		name    string
		create  func(path string) error
		wantErr string
	}{
		{"file", write(17), ""},
		{"missing", func(string) error { return nil }, "no such file or directory"},
		{"directory", func(path string) error { return os.Mkdir(path, 0o700) }, "not a regular file"},
		{"fifo", func(path string) error { return unix.Mkfifo(path, 0o600) }, "not a regular file"},
		{"too large", write(maxConfigBytes + 1), "larger than 16 MiB"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			dir := bundle(t, test.create)
			config, err := Load(dir)
			if test.wantErr == "" {
				if err != nil || config.Hostname != "a" {
					t.Errorf("got %v, %v", config, err)
				}
				return
			}
			want := `read "` + dir + `/config.json": ` + test.wantErr
			if err == nil || err.Error() != want {
				t.Errorf("got %v, want %s", err, want)
			}
			if got := errors.Is(err, fs.ErrNotExist); got != (test.name == "missing") {
				t.Errorf("is ErrNotExist: got %v", got)
			}
		})
	}
	// The bound itself is fine: the rest is NUL bytes, which JSON refuses.
	dir := bundle(t, write(maxConfigBytes))
	if _, err := Load(dir); err == nil || !strings.HasPrefix(err.Error(), "parse ") {
		t.Errorf("16 MiB: got %v, want a parse error", err)
	}
}
