package spec

import (
	"slices"
	"testing"
)

func TestParseIDList(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		list string
		want []IDRange // nil for an error
	}{
		{"0", []IDRange{{0, 0}}},
		{"0-3,7", []IDRange{{0, 3}, {7, 7}}},
		{" 5 , 2-2 ,", []IDRange{{5, 5}, {2, 2}}},
		{",,1,1", []IDRange{{1, 1}, {1, 1}}},
		{"65535", []IDRange{{65535, 65535}}},
		{"", nil},
		{" , ", nil},
		{"65536", nil},
		{"99999999999999999999", nil},
		{"3-1", nil},
		{"-1", nil},
		{"1-", nil},
		{"1-2-3", nil},
		{"1 2", nil},
		{"1- 2", nil},
		{"+1", nil},
		{"0x1", nil},
		{"a", nil},
		{"0-7:2", nil},
		{"1\x00", nil},
	} {
		got, err := ParseIDList(test.list)
		if !slices.Equal(got, test.want) || (err == nil) != (test.want != nil) {
			t.Errorf("%q: got %v, %v, want %v", test.list, got, err, test.want)
		}
	}
}

func TestIDMask(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		ranges []IDRange
		want   []int
		words  int
	}{
		{nil, nil, 0},
		{[]IDRange{{First: 0, Last: 0}}, []int{0}, 1},
		{[]IDRange{{First: 62, Last: 64}, {First: 1, Last: 2}}, []int{1, 2, 62, 63, 64}, 2},
		{[]IDRange{{First: 63, Last: 63}}, []int{63}, 1},
	} {
		mask := IDMask(test.ranges)
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
