package container

import (
	"encoding/json"
	"fmt"
	"testing"

	"eggrun/internal/syncsocket"
	"eggrun/spec"
)

// TestTreesAskedFor refuses a mount that is none of the container's, or that has
// no source.
func TestTreesAskedFor(t *testing.T) {
	t.Parallel()
	mounts := []spec.Mount{{Type: "proc"}, {}}
	for _, asked := range []string{"-1", "0", "2"} {
		message := &syncsocket.Message{Kind: syncsocket.Trees, Body: json.RawMessage(asked)}
		if err := (&sources{}).send(nil, mounts, message); fmt.Sprint(err) != `sync message "trees": unexpected` {
			t.Errorf("mount %s: error %v", asked, err)
		}
	}
}
