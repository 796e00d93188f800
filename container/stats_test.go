package container

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/runtime-spec/specs-go"
)

// fill sets every number below v, each to another one.
func fill(v reflect.Value, next *uint64) {
	switch v.Kind() {
	case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		*next++
		v.SetUint(*next)
	case reflect.Int64:
		*next++
		v.SetInt(int64(*next))
	case reflect.Float64:
		*next++
		v.SetFloat(float64(*next) + .5)
	case reflect.Bool:
		v.SetBool(true)
	case reflect.String:
		v.SetString("Read")
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), next)
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i), next)
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), next)
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		key, element := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(element, next)
		fill(key, next)
		v.SetMapIndex(key, element)
	}
}

// TestEventJSON compares with what runc 1.5 prints for the same numbers, all and
// none, and for the end of memory.
func TestEventJSON(t *testing.T) {
	t.Parallel()
	want, err := os.ReadFile("testdata/events.json")
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	lines := json.NewEncoder(&got)
	all, next := &cgroups.Stats{}, uint64(0)
	fill(reflect.ValueOf(all).Elem(), &next)
	for _, event := range []*Event{
		{Type: "stats", ID: "c1", Data: statsOf(all)},
		{Type: "stats", ID: "c1", Data: statsOf(cgroups.NewStats())},
		{Type: "oom", ID: "c1"},
	} {
		if err := lines.Encode(event); err != nil {
			t.Fatal(err)
		}
	}
	if got.String() != string(want) {
		t.Errorf("got\n%s\nwant\n%s", got.String(), want)
	}
}

func TestRdtStats(t *testing.T) {
	t.Parallel()
	root := fakeResctrl(t)
	write := func(files map[string]string) {
		for path, text := range files {
			path = filepath.Join(root, path)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	check := func(config specs.LinuxIntelRdt, want string) {
		t.Helper()
		stats, err := rdtClassOf(root, "c1", &config).stats()
		if err != nil {
			t.Fatal(err)
		}
		got, err := json.Marshal(stats)
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != want {
			t.Errorf("%+v: got\n%s, want\n%s", config, got, want)
		}
	}
	gold := specs.LinuxIntelRdt{ClosID: "gold"}
	check(gold, `{"schemata":["L3:0=00f;1=7f0","MB:0= 50;1=100"]}`)
	write(map[string]string{
		"info/L3/cbm_mask": "7ff\n", "info/L3/min_cbm_bits": "1\n", "info/L3/num_closids": "16\n",
		"info/MB/bandwidth_gran": "10\n", "info/MB/delay_linear": "1\n", "info/MB/min_bandwidth": "10\n", "info/MB/num_closids": "8\n",
	})
	const shares = `{"l3_cache_info":{"cbm_mask":"7ff","min_cbm_bits":1,"num_closids":16},"l3_cache_schema_root":"L3:0=7ff;1=7ff","l3_cache_schema":"L3:0=00f;1=7f0",` +
		`"mem_bw_info":{"bandwidth_gran":10,"delay_linear":1,"min_bandwidth":10,"num_closids":8},"mem_bw_schema_root":"MB:0=100;1=100","mem_bw_schema":"MB:0= 50;1=100",` +
		`"schemata":["L3:0=00f;1=7f0","MB:0= 50;1=100"]`
	check(gold, shares+"}")
	write(map[string]string{
		"info/L3_MON/mon_features":                              "llc_occupancy\nmbm_total_bytes\n",
		"gold/mon_data/mon_L3_00/llc_occupancy":                 "5\n",
		"gold/mon_data/mon_L3_00/mbm_total_bytes":               "6\n",
		"gold/mon_groups/c1/mon_data/mon_L3_00/llc_occupancy":   "1\n",
		"gold/mon_groups/c1/mon_data/mon_L3_00/mbm_total_bytes": "2\n",
		"gold/mon_groups/c1/mon_data/mon_L3_01/llc_occupancy":   "3\n",
		"gold/mon_groups/c1/mon_data/mon_L3_01/mbm_total_bytes": "4\n",
	})
	check(gold, shares+`,"mbm_stats":[{"mbm_total_bytes":6,"mbm_local_bytes":0}],"cmt_stats":[{"llc_occupancy":5}]}`)
	gold.EnableMonitoring = true
	check(gold, shares+`,"mbm_stats":[{"mbm_total_bytes":2,"mbm_local_bytes":0},{"mbm_total_bytes":4,"mbm_local_bytes":0}],"cmt_stats":[{"llc_occupancy":1},{"llc_occupancy":3}]}`)

	write(map[string]string{"info/L3/num_closids": "many\n"})
	_, err := rdtClassOf(root, "c1", &gold).stats()
	if want := `linux.intelRdt: "` + filepath.Join(root, "info/L3/num_closids") + `": "many", want a number`; err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
}
