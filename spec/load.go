package spec

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// maxConfigBytes bounds config.json. The largest that engines write, with a
// seccomp profile and a hundred mounts, have some 100 KiB.
const maxConfigBytes = 16 << 20

// Load reads the config.json of a bundle. It must be a regular file of at most
// 16 MiB; see [Decode] for what it may contain.
//
// A missing file is an error that matches [fs.ErrNotExist].
func Load(bundle string) (*specs.Spec, error) {
	path := filepath.Join(bundle, "config.json")
	data, err := readConfig(path)
	if err != nil {
		var pathErr *fs.PathError
		if errors.As(err, &pathErr) {
			err = pathErr.Err
		}
		return nil, fmt.Errorf("read %q: %w", path, err)
	}
	return Decode(data)
}

func readConfig(path string) ([]byte, error) {
	// O_NONBLOCK: a FIFO of that name must not hold create up for ever.
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("not a regular file")
	}
	// The bound is on what is read, since the file may grow meanwhile.
	data, err := io.ReadAll(io.LimitReader(file, maxConfigBytes+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxConfigBytes {
		return nil, fmt.Errorf("larger than %d MiB", maxConfigBytes>>20)
	}
	return data, nil
}

// Decode parses the text of a config.json. Fields that the specification
// doesn't have are ignored, as it demands, and ociVersion is never judged; text
// after the object is an error. Errors tell line and column, counted in bytes
// from 1.
func Decode(data []byte) (*specs.Spec, error) {
	return decode[specs.Spec](configFile, data)
}

// DecodeProcess parses the text of a process by the rules of [Decode], as exec
// gets it. name is what errors call it.
func DecodeProcess(name string, data []byte) (*specs.Process, error) {
	return decode[specs.Process](name, data)
}

func decode[T any](name string, data []byte) (*T, error) {
	var value *T
	if err := json.Unmarshal(data, &value); err != nil {
		return nil, decodeError(name, data, err)
	}
	if value == nil {
		return nil, fmt.Errorf("parse %q: is null, want an object", name)
	}
	return value, nil
}

// decodeError puts the place before the cause, both without the words of
// package json that only a Go programmer understands.
func decodeError(name string, data []byte, err error) error {
	var syntaxErr *json.SyntaxError
	var typeErr *json.UnmarshalTypeError
	switch {
	case errors.As(err, &syntaxErr):
		return fmt.Errorf("parse %q: %s: %w", name, position(data, syntaxErr.Offset), err)
	case errors.As(err, &typeErr):
		field := typeErr.Field
		if field == "" {
			field = "the document"
		}
		return fmt.Errorf("parse %q: %s: %s: is %s, want %s",
			name, position(data, typeErr.Offset), field, typeErr.Value, jsonName(typeErr.Type))
	}
	return fmt.Errorf("parse %q: %w", name, err)
}

// jsonName is what JSON calls values of a Go type, the range in it for numbers.
func jsonName(kind reflect.Type) string {
	switch kind.Kind() {
	case reflect.Struct, reflect.Map:
		return "object"
	case reflect.Slice, reflect.Array:
		return "array"
	case reflect.Pointer:
		return jsonName(kind.Elem())
	}
	return kind.Kind().String()
}

// position tells line and column of the byte before offset, which is how
// package json counts.
func position(data []byte, offset int64) string {
	offset = min(max(offset, 0), int64(len(data)))
	read := data[:offset]
	line := 1 + bytes.Count(read, []byte("\n"))
	column := len(read) - (bytes.LastIndexByte(read, '\n') + 1)
	return fmt.Sprintf("line %d: column %d", line, column)
}
