package spec

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// IDRange are the CPUs or memory nodes from First to Last, both included.
type IDRange struct {
	First int `json:"first"`
	Last  int `json:"last"`
}

// maxID bounds the numbers of CPUs and memory nodes, so that no list makes a
// mask of an unreasonable size; no kernel has as many.
const maxID = 65535

// ParseIDList parses a list of CPUs or memory nodes, "0-3,7", the format of
// cpuset(7) without strides. Spaces around an element and empty elements are
// allowed, as in runc; a list without any number is not.
func ParseIDList(list string) ([]IDRange, error) {
	var ranges []IDRange
	for element := range strings.SplitSeq(list, ",") {
		element = strings.TrimSpace(element)
		if element == "" {
			continue
		}
		first, last, isRange := strings.Cut(element, "-")
		if !isRange {
			last = first
		}
		r := IDRange{First: parseID(first), Last: parseID(last)}
		if r.First < 0 || r.Last < r.First {
			return nil, fmt.Errorf("%q is neither a number nor a range, at most %d", element, maxID)
		}
		ranges = append(ranges, r)
	}
	if len(ranges) == 0 {
		return nil, errors.New("has no number in it")
	}
	return ranges, nil
}

// IDMask returns a mask with a bit for each number in ranges, nil for none.
func IDMask(ranges []IDRange) unix.CPUSetDynamic {
	if len(ranges) == 0 {
		return nil
	}
	last := 0
	for _, r := range ranges {
		last = max(last, r.Last)
	}
	mask := unix.NewCPUSet(last + 1)
	for _, r := range ranges {
		for id := r.First; id <= r.Last; id++ {
			mask.Set(id)
		}
	}
	return mask
}

// parseID returns -1 for what is no number from 0 to maxID.
func parseID(text string) int {
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil || n > maxID {
		return -1
	}
	return int(n)
}
