package initproc

import (
	"os"
	"testing"

	"eggrun/internal/syncsocket"
)

// TestTakeTree asks once for a run of bind mounts, whether or not Joined comes
// before the answer.
func TestTakeTree(t *testing.T) {
	t.Parallel()
	for _, early := range []bool{false, true} {
		host, inner, err := syncsocket.Pair()
		if err != nil {
			t.Fatal(err)
		}
		defer inner.Close()
		answered := make(chan error, 1)
		go func() {
			defer host.Close() // a second question is an error
			var first int
			_, err := host.Expect(syncsocket.Trees, &first)
			if err == nil && early {
				err = host.Send(syncsocket.Joined, nil)
			}
			if err == nil && first == 3 {
				err = host.Send(syncsocket.Trees, nil, os.Stdout, os.Stderr)
			}
			answered <- err
		}()
		c := &container{socket: inner, trees: make(map[int]*os.File)}
		for _, index := range []int{3, 4} {
			tree, err := c.takeTree(index)
			if err != nil {
				t.Fatalf("tree %d: %v", index, err)
			}
			tree.Close()
		}
		if err := <-answered; err != nil {
			t.Error(err)
		}
		if (c.joined != nil) != early {
			t.Errorf("early %v: kept %v", early, c.joined)
		}
		if tree, err := c.takeTree(5); err == nil {
			t.Errorf("tree 5: %v", tree.Name())
		}
	}
}
