package egress

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"
)

// AuditLine is one line of an audit: a decision, or the end of a connection.
type AuditLine struct {
	Time        time.Time `json:"time"`
	Event       string    `json:"event"` // decision or close
	Proto       string    `json:"proto"`
	Host        string    `json:"host"`
	Port        uint16    `json:"port"` // 0 for a question for a name
	UID         *int      `json:"uid"`
	Decision    string    `json:"decision"`
	Rule        string    `json:"rule"`
	Reason      string    `json:"reason"`
	WouldDeny   bool      `json:"would_deny"`
	BytesUp     int64     `json:"bytes_up"`
	BytesDown   int64     `json:"bytes_down"`
	Duration    float64   `json:"duration_ms"`
	CloseReason string    `json:"close_reason"`
	// Raw is the line as it was written.
	Raw string `json:"-"`
}

// IsRefusal tells whether something was refused, or would be if the policy did
// not only observe.
func (l *AuditLine) IsRefusal() bool { return l.Decision == "deny" || l.WouldDeny }

// Target is what the line is about: host:port, or a name alone.
func (l *AuditLine) Target() string {
	switch {
	case l.Port == 0:
		return l.Host
	case strings.Contains(l.Host, ":"):
		return fmt.Sprintf("[%s]:%d", l.Host, l.Port)
	}
	return fmt.Sprintf("%s:%d", l.Host, l.Port)
}

// FindAudit returns the audit of a container, which stays when the container is
// deleted. With anyRoot it is found wherever the container's state was, if there
// is one of the id alone.
func FindAudit(id string, where Where, anyRoot bool) (string, error) {
	path, err := AuditPath(id, where)
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(path); err == nil || !errors.Is(err, fs.ErrNotExist) {
		return path, err
	}
	var all []string
	if anyRoot {
		if all, err = auditsOf(id, where.Rootless); err != nil {
			return "", err
		}
	}
	switch len(all) {
	case 0:
		return "", errors.New("no audit; the container had no policy, or it was long ago")
	case 1:
		return all[0], nil
	}
	return "", fmt.Errorf("%d containers of that id have an audit; say by --root which one is meant", len(all))
}

// ReadAudit calls each for every line of an audit, oldest first. What is no whole
// line is left out.
func ReadAudit(path string, each func(*AuditLine) error) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := &AuditLine{Raw: lines.Text()}
		if json.Unmarshal(lines.Bytes(), line) != nil {
			continue
		}
		if err := each(line); err != nil {
			return err
		}
	}
	return lines.Err()
}

// Refusals returns what a container was refused since a moment, each once, in
// the order in which it was met.
func Refusals(id string, where Where, since time.Time) ([]string, error) {
	var targets []string
	seen := map[string]bool{}
	path, err := FindAudit(id, where, false)
	if err != nil {
		return nil, err
	}
	err = ReadAudit(path, func(l *AuditLine) error {
		if l.Decision != "deny" || l.Time.Before(since) {
			return nil
		}
		if target := l.Target(); !seen[target] {
			seen[target] = true
			targets = append(targets, target)
		}
		return nil
	})
	return targets, err
}
