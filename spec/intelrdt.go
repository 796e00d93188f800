package spec

import (
	"slices"
	"strings"
)

// translateIntelRdt checks what would become a path or a line of a file of the
// resctrl file system; the kernel judges the rest.
func translateIntelRdt(src *source, plan *Plan) error {
	rdt := src.linux.IntelRdt
	if rdt == nil {
		return nil
	}
	const field = "linux.intelRdt."
	// "/" is the root of the file system, the default class.
	reserved := []string{".", "..", "info", "mon_data", "mon_groups"}
	if id := rdt.ClosID; id != "/" && (strings.ContainsAny(id, "/\n\x00") || slices.Contains(reserved, id)) {
		return invalidValue(field+"closID", id, "not the name of a class of service")
	}
	type line struct{ field, value string }
	lines := []line{{field + "l3CacheSchema", rdt.L3CacheSchema}, {field + "memBwSchema", rdt.MemBwSchema}}
	for i, schema := range rdt.Schemata {
		lines = append(lines, line{at(field+"schemata", i), schema})
	}
	for _, l := range lines {
		if strings.Contains(l.value, "\n") {
			return invalidValue(l.field, l.value, "must be one line")
		}
	}
	if schema := rdt.MemBwSchema; schema != "" && !strings.HasPrefix(schema, "MB:") {
		return invalidValue(field+"memBwSchema", schema, "must start with MB:")
	}
	plan.IntelRdt = rdt
	return nil
}
