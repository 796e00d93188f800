package spec

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// FieldError tells which field of config.json can't be used, and why.
//
// It matches [errors.ErrUnsupported] where the field is valid and this runtime
// doesn't apply it.
type FieldError struct {
	// File is what holds the field: "config.json", or "process" for the
	// process of an exec.
	File string
	// Field is the path of the field, like "mounts[2].options".
	Field string
	// Value is the offending value, strings quoted, "" where it would not help.
	Value string
	// Reason is the cause, with a hint after "; " where there is one.
	Reason string
	// Unsupported is set where the field is valid, but not applied.
	Unsupported bool
}

// Error returns one line, `FILE: FIELD VALUE: REASON`.
func (e *FieldError) Error() string {
	subject := e.Field
	if e.Value != "" {
		subject += " " + e.Value
	}
	return e.File + ": " + subject + ": " + e.Reason
}

// Is reports whether target is [errors.ErrUnsupported] and e is such an error.
func (e *FieldError) Is(target error) bool {
	return e.Unsupported && target == errors.ErrUnsupported
}

// notYet is the reason of everything that a later release may apply.
const notYet = "not supported yet"

const configFile = "config.json"

func invalid(field, format string, args ...any) error {
	return &FieldError{File: configFile, Field: field, Reason: fmt.Sprintf(format, args...)}
}

func invalidValue(field string, value any, format string, args ...any) error {
	return &FieldError{File: configFile, Field: field, Value: quote(value), Reason: fmt.Sprintf(format, args...)}
}

func unsupported(field, reason string) error {
	return &FieldError{File: configFile, Field: field, Reason: reason, Unsupported: true}
}

func unsupportedValue(field string, value any, reason string) error {
	return &FieldError{File: configFile, Field: field, Value: quote(value), Reason: reason, Unsupported: true}
}

func quote(value any) string {
	switch value.(type) {
	case int, int64, uint32, uint64:
		return fmt.Sprint(value)
	}
	return fmt.Sprintf("%q", value)
}

// noNUL refuses what the kernel would cut short: it reads strings up to the
// first NUL, so a check of the whole string would have checked something else.
func noNUL(field, value string) error {
	if strings.IndexByte(value, 0) >= 0 {
		return invalidValue(field, value, "must not contain a NUL byte")
	}
	return nil
}

// absolute refuses a path that isn't absolute or that holds a NUL byte.
func absolute(field, path string) error {
	if path == "" {
		return invalid(field, "must not be empty")
	}
	if err := noNUL(field, path); err != nil {
		return err
	}
	if path[0] != '/' {
		return invalidValue(field, path, "must be absolute")
	}
	return nil
}

// at names an element of a list.
func at(list string, index int) string {
	return list + "[" + strconv.Itoa(index) + "]"
}
