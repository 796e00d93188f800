package container

import (
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
)

func TestRuleSteps(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		allow string // a rule a letter: a and d for every device, + and - for one
		want  []int
	}{
		{"no rules", "", nil},
		{"deny all", "d", nil},
		{"allow all", "a", nil},
		{"some", "d+++", []int{2, 3, 4}},
		{"no rule for all", "++", []int{1, 2}},
		{"one denied later", "d+-+", []int{4}},
		{"one denied last", "d++-", nil},
		{"all denied later", "+a+d+", []int{5}},
	} {
		var rules []specs.LinuxDeviceCgroup
		for i, letter := range strings.Split(tt.allow, "") {
			rule := specs.LinuxDeviceCgroup{Access: "rwm", Allow: letter == "a" || letter == "+"}
			if letter == "+" || letter == "-" {
				major := int64(100 - i)
				rule.Type, rule.Major = "c", &major
			}
			rules = append(rules, rule)
		}
		resources, err := cgroupResources(&specs.LinuxResources{Devices: rules})
		if err != nil {
			t.Fatal(err)
		}
		steps := ruleSteps(resources.Devices)
		if len(steps) != len(tt.want) {
			t.Errorf("%s: %d steps, want %v", tt.name, len(steps), tt.want)
			continue
		}
		for i, step := range steps {
			if len(step) != tt.want[i] {
				t.Errorf("%s: step %d has %d rules, want %d", tt.name, i, len(step), tt.want[i])
			}
		}
	}
	if steps := ruleSteps(nil); steps != nil {
		t.Errorf("not even the default rules: %v", steps)
	}
}
