package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/urfave/cli/v2"
)

// errorLog is what an engine asks for with --log: on an error exactly one
// record, which podman wants to be the only one in the file.
type errorLog struct {
	path   string
	isJSON bool
}

func (l *errorLog) open(c *cli.Context) error {
	switch format := c.String("log-format"); format {
	case "json":
		l.isJSON = true
	case "text", "":
	default:
		return fmt.Errorf("option --log-format %q: want text or json", format)
	}
	l.path = c.String("log")
	if c.Bool("debug") {
		l.record("debug", strings.Join(os.Args, " "))
	}
	return nil
}

// fatal writes the error to stderr, where people and conmon look, and to the
// log. It may have words of an image or of config.json in it.
func (l *errorLog) fatal(err error) {
	message := printable(strings.ReplaceAll(err.Error(), "\n", "; "))
	fmt.Fprintf(os.Stderr, "eggrun: %s\n", message)
	l.record("error", message)
}

// record appends one record. Nothing is said about a log that can't be written:
// the message is on stderr.
func (l *errorLog) record(level, message string) {
	if l.path == "" {
		if level == "debug" {
			fmt.Fprintf(os.Stderr, "eggrun: debug: %s\n", message)
		}
		return
	}
	now := time.Now().Format(time.RFC3339Nano)
	line := []byte(fmt.Sprintf("time=%q level=%s msg=%q", now, level, message))
	if l.isJSON {
		line, _ = json.Marshal(map[string]string{"level": level, "msg": message, "time": now}) // strings always marshal
	}
	f, err := os.OpenFile(l.path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
	if err != nil {
		return
	}
	defer f.Close()
	_, _ = f.Write(append(line, '\n'))
}
