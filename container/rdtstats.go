package container

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// rdtStats are the numbers of a class of service, with runc's field names.
type rdtStats struct {
	L3CacheInfo       *l3CacheInfo `json:"l3_cache_info,omitempty"`
	L3CacheSchemaRoot string       `json:"l3_cache_schema_root,omitempty"`
	L3CacheSchema     string       `json:"l3_cache_schema,omitempty"`
	MemBwInfo         *memBwInfo   `json:"mem_bw_info,omitempty"`
	MemBwSchemaRoot   string       `json:"mem_bw_schema_root,omitempty"`
	MemBwSchema       string       `json:"mem_bw_schema,omitempty"`
	// Schemata is the class's file of that name.
	Schemata []string `json:"schemata,omitempty"`
	// MBM and CMT have an entry a domain, nil where the processor does not
	// count that.
	MBM *[]mbmStats `json:"mbm_stats,omitempty"`
	CMT *[]cmtStats `json:"cmt_stats,omitempty"`
}

type l3CacheInfo struct {
	CbmMask    string `json:"cbm_mask,omitempty"`
	MinCbmBits uint64 `json:"min_cbm_bits,omitempty"`
	NumClosids uint64 `json:"num_closids,omitempty"`
}

type memBwInfo struct {
	BandwidthGran uint64 `json:"bandwidth_gran,omitempty"`
	DelayLinear   uint64 `json:"delay_linear,omitempty"`
	MinBandwidth  uint64 `json:"min_bandwidth,omitempty"`
	NumClosids    uint64 `json:"num_closids,omitempty"`
}

type mbmStats struct {
	TotalBytes uint64 `json:"mbm_total_bytes"`
	LocalBytes uint64 `json:"mbm_local_bytes"`
}

type cmtStats struct {
	Occupancy uint64 `json:"llc_occupancy"`
}

// stats reads the numbers of the class, those of all its containers where the
// container is not monitored on its own.
func (c *rdtClass) stats() (*rdtStats, error) {
	r := rdtReader{}
	stats := &rdtStats{Schemata: r.lines(filepath.Join(c.dir, "schemata"))}
	ofRoot := r.lines(filepath.Join(c.root, "schemata"))
	if info := filepath.Join(c.root, "info", "L3"); r.exists(info) {
		stats.L3CacheInfo = &l3CacheInfo{
			CbmMask:    r.text(filepath.Join(info, "cbm_mask")),
			MinCbmBits: r.number(filepath.Join(info, "min_cbm_bits")),
			NumClosids: r.number(filepath.Join(info, "num_closids")),
		}
		stats.L3CacheSchemaRoot, stats.L3CacheSchema = schemaOf("L3", ofRoot), schemaOf("L3", stats.Schemata)
	}
	if info := filepath.Join(c.root, "info", "MB"); r.exists(info) {
		stats.MemBwInfo = &memBwInfo{
			BandwidthGran: r.number(filepath.Join(info, "bandwidth_gran")),
			DelayLinear:   r.number(filepath.Join(info, "delay_linear")),
			MinBandwidth:  r.number(filepath.Join(info, "min_bandwidth")),
			NumClosids:    r.number(filepath.Join(info, "num_closids")),
		}
		stats.MemBwSchemaRoot, stats.MemBwSchema = schemaOf("MB", ofRoot), schemaOf("MB", stats.Schemata)
	}
	if features := filepath.Join(c.root, "info", "L3_MON", "mon_features"); r.exists(features) {
		dir := c.monitor
		if dir == "" {
			dir = c.dir
		}
		r.counters(stats, filepath.Join(dir, "mon_data"), r.lines(features))
	}
	if r.err != nil {
		return nil, fmt.Errorf("linux.intelRdt: %w", r.err)
	}
	return stats, nil
}

// schemaOf returns the line of a resource. The resource L3 may be split into
// L3CODE and L3DATA, of which there is room for the last.
func schemaOf(resource string, lines []string) string {
	schema := ""
	for _, line := range lines {
		if strings.HasPrefix(line, resource) {
			schema = line
		}
	}
	return schema
}

// rdtReader reads small files and keeps the first error.
type rdtReader struct{ err error }

func (r *rdtReader) keep(err error) {
	if r.err == nil {
		r.err = err
	}
}

func (r *rdtReader) exists(path string) bool {
	_, err := os.Stat(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		r.keep(err)
	}
	return err == nil
}

func (r *rdtReader) text(path string) string {
	data, err := os.ReadFile(path)
	r.keep(err)
	return strings.TrimSpace(string(data))
}

func (r *rdtReader) number(path string) uint64 {
	text := r.text(path)
	if r.err != nil {
		return 0
	}
	number, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		r.keep(fmt.Errorf("%q: %q, want a number", path, text))
	}
	return number
}

func (r *rdtReader) lines(path string) []string {
	var lines []string
	for line := range strings.Lines(r.text(path)) {
		lines = append(lines, strings.TrimSpace(line))
	}
	return lines
}

// counters reads what is counted in each domain, in the order of their names.
func (r *rdtReader) counters(stats *rdtStats, dir string, features []string) {
	entries, err := os.ReadDir(dir)
	r.keep(err)
	var mbm []mbmStats
	var cmt []cmtStats
	count := func(domain, feature string) uint64 {
		if !slices.Contains(features, feature) {
			return 0
		}
		return r.number(filepath.Join(dir, domain, feature))
	}
	for _, domain := range entries {
		if !domain.IsDir() {
			continue
		}
		mbm = append(mbm, mbmStats{count(domain.Name(), "mbm_total_bytes"), count(domain.Name(), "mbm_local_bytes")})
		cmt = append(cmt, cmtStats{count(domain.Name(), "llc_occupancy")})
	}
	if slices.Contains(features, "mbm_total_bytes") || slices.Contains(features, "mbm_local_bytes") {
		stats.MBM = &mbm
	}
	if slices.Contains(features, "llc_occupancy") {
		stats.CMT = &cmt
	}
}
