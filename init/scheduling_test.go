package initproc

import (
	"slices"
	"testing"

	"eggrun/spec"
)

func TestIDMask(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		ranges []spec.IDRange
		want   []int
		words  int
	}{
		{nil, nil, 0},
		{[]spec.IDRange{{First: 0, Last: 0}}, []int{0}, 1},
		{[]spec.IDRange{{First: 62, Last: 64}, {First: 1, Last: 2}}, []int{1, 2, 62, 63, 64}, 2},
		{[]spec.IDRange{{First: 63, Last: 63}}, []int{63}, 1},
	} {
		mask := idMask(test.ranges)
		var got []int
		for id := range 64 * max(len(mask), 1) {
			if mask.IsSet(id) {
				got = append(got, id)
			}
		}
		// A word has 64 bits on the machines that this runs on.
		if !slices.Equal(got, test.want) || len(mask) != test.words {
			t.Errorf("%v: got %v in %d words, want %v in %d", test.ranges, got, len(mask), test.want, test.words)
		}
	}
}
