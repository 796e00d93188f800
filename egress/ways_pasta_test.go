package egress

import (
	"os"
	"strings"
	"testing"
)

func TestBringsPorts(t *testing.T) {
	t.Parallel()
	own, err := os.Stat("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	for line, want := range map[string]bool{
		"/usr/bin/pasta --config-net -t none -u none -T none -U none --netns /proc/self/ns/net": false,
		"pasta.avx2 --tcp-ns=none --udp-ns none --netns=/proc/self/ns/net":                      false,
		"pasta -Tnone -Unone self":                      false,
		"pasta -T auto -U none self":                    true,
		"pasta -T 8080 -U none self":                    true,
		"pasta -T8080 -U none self":                     true,
		"pasta -T none -U 53 self":                      true,
		"pasta -T none --udp-ns=53 self":                true,
		"pasta -T none -T 80 -U none self":              true,
		"pasta -U none self":                            true,
		"pasta -T none self":                            true,
		"pasta self":                                    true,
		"pasta -U none -T":                              false,
		"pasta -T 8080 --netns /proc/self/ns/pid":       false,
		"passt -T 8080 self":                            false,
		"sh -c pasta -T 8080 --netns /proc/self/ns/net": false,
		"": false,
	} {
		if got := bringsPorts(strings.Split(line, " "), own); got != want {
			t.Errorf("%q: %v, want %v", line, got, want)
		}
	}
}
