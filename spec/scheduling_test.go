package spec

import (
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

func TestTranslateScheduler(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		from specs.Scheduler
		want Scheduler
	}{
		{specs.Scheduler{Policy: specs.SchedOther, Nice: -20}, Scheduler{Nice: -20}},
		{specs.Scheduler{Policy: specs.SchedBatch, Nice: 19}, Scheduler{Policy: unix.SCHED_BATCH, Nice: 19}},
		{specs.Scheduler{Policy: specs.SchedFIFO, Priority: 1}, Scheduler{Policy: unix.SCHED_FIFO, Priority: 1}},
		{
			specs.Scheduler{Policy: specs.SchedRR, Priority: 99, Flags: []specs.LinuxSchedulerFlag{specs.SchedFlagResetOnFork}},
			Scheduler{Policy: unix.SCHED_RR, Priority: 99, Flags: unix.SCHED_FLAG_RESET_ON_FORK},
		},
		{specs.Scheduler{Policy: specs.SchedISO}, Scheduler{Policy: 4}},
		{specs.Scheduler{Policy: specs.SchedIdle}, Scheduler{Policy: unix.SCHED_IDLE}},
		{
			specs.Scheduler{Policy: specs.SchedDeadline, Runtime: 1024, Deadline: 2000, Period: 3000},
			Scheduler{Policy: unix.SCHED_DEADLINE, Runtime: 1024, Deadline: 2000, Period: 3000},
		},
		{
			specs.Scheduler{Policy: specs.SchedDeadline, Runtime: 5000, Deadline: 5000, Flags: []specs.LinuxSchedulerFlag{
				specs.SchedFlagReclaim, specs.SchedFlagDLOverrun, specs.SchedFlagKeepPolicy,
				specs.SchedFlagKeepParams, specs.SchedFlagUtilClampMin, specs.SchedFlagUtilClampMax,
			}},
			Scheduler{Policy: unix.SCHED_DEADLINE, Runtime: 5000, Deadline: 5000, Flags: unix.SCHED_FLAG_ALL &^ unix.SCHED_FLAG_RESET_ON_FORK},
		},
	} {
		config := minimal()
		config.Process.Scheduler = &test.from
		plan, err := Translate(config, testBundle, nil)
		if err != nil {
			t.Errorf("%+v: %v", test.from, err)
			continue
		}
		if *plan.Process.Scheduler != test.want {
			t.Errorf("%+v: got %+v, want %+v", test.from, *plan.Process.Scheduler, test.want)
		}
	}
}

func TestTranslateRefusesScheduling(t *testing.T) {
	t.Parallel()
	scheduler := func(s specs.Scheduler) func(*specs.Spec) {
		return func(c *specs.Spec) { c.Process.Scheduler = &s }
	}
	deadline := func(runtime, deadline, period uint64) func(*specs.Spec) {
		return scheduler(specs.Scheduler{Policy: specs.SchedDeadline, Runtime: runtime, Deadline: deadline, Period: period})
	}
	ioPriority := func(class specs.IOPriorityClass, priority int) func(*specs.Spec) {
		return func(c *specs.Spec) {
			c.Process.IOPriority = &specs.LinuxIOPriority{Class: class, Priority: priority}
		}
	}
	affinity := func(initial, final string) func(*specs.Spec) {
		return func(c *specs.Spec) {
			c.Process.ExecCPUAffinity = &specs.CPUAffinity{Initial: initial, Final: final}
		}
	}
	const order = `process.scheduler: want 1024 <= runtime <= deadline <= period, in nanoseconds`
	runErrorTests(t, false, []errorTest{
		{"no policy", scheduler(specs.Scheduler{}), `process.scheduler.policy "": no such policy`},
		{"odd policy", scheduler(specs.Scheduler{Policy: "FIFO"}), `process.scheduler.policy "FIFO": no such policy`},
		{"nice too low", scheduler(specs.Scheduler{Policy: specs.SchedOther, Nice: -21}), `process.scheduler.nice -21: must be from -20 to 19`},
		{"nice too high", scheduler(specs.Scheduler{Policy: specs.SchedIdle, Nice: 20}), `process.scheduler.nice 20: must be from -20 to 19`},
		{"fifo without priority", scheduler(specs.Scheduler{Policy: specs.SchedFIFO}), `process.scheduler.priority 0: must be from 1 to 99 with SCHED_FIFO`},
		{"rr with 100", scheduler(specs.Scheduler{Policy: specs.SchedRR, Priority: 100}), `process.scheduler.priority 100: must be from 1 to 99 with SCHED_RR`},
		{"fifo with -1", scheduler(specs.Scheduler{Policy: specs.SchedFIFO, Priority: -1}), `process.scheduler.priority -1: must be from 1 to 99 with SCHED_FIFO`},
		{"other with priority", scheduler(specs.Scheduler{Policy: specs.SchedOther, Priority: 1}), `process.scheduler.priority 1: must be 0 with SCHED_OTHER`},
		{"odd flag", scheduler(specs.Scheduler{Policy: specs.SchedOther, Flags: []specs.LinuxSchedulerFlag{specs.SchedFlagReclaim, "x"}}), `process.scheduler.flags[1] "x": no such flag`},
		{"other with runtime", scheduler(specs.Scheduler{Policy: specs.SchedOther, Runtime: 1}), `process.scheduler: runtime, deadline and period are for SCHED_DEADLINE only`},
		{"deadline", deadline(2000, 2000, 0), ""},
		{"deadline without", deadline(0, 0, 0), order},
		{"runtime too short", deadline(1023, 2000, 2000), order},
		{"runtime after deadline", deadline(2001, 2000, 3000), order},
		{"deadline after period", deadline(2000, 3000, 2999), order},
		{"period too long", deadline(2000, 2000, 1<<63), order},

		{"io", ioPriority(specs.IOPRIO_CLASS_RT, 0), ""},
		{"io class", ioPriority("", 0), `process.ioPriority.class "": no such class`},
		{"io too low", ioPriority(specs.IOPRIO_CLASS_BE, -1), `process.ioPriority.priority -1: must be from 0 to 7`},
		{"io too high", ioPriority(specs.IOPRIO_CLASS_IDLE, 8), `process.ioPriority.priority 8: must be from 0 to 7`},

		{"affinity", affinity("0-3", "7"), ""},
		{"affinity, empty", affinity("", ""), ""},
		{"initial", affinity("a", ""), `process.execCPUAffinity.initial "a": "a" is neither a number nor a range, at most 65535`},
		{"final", affinity("0", "2-1"), `process.execCPUAffinity.final "2-1": "2-1" is neither a number nor a range, at most 65535`},
		{"final without a number", affinity("0", ","), `process.execCPUAffinity.final ",": has no number in it`},
	})
}

func TestIOPriority(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		class specs.IOPriorityClass
		level int
		want  int
	}{
		{specs.IOPRIO_CLASS_RT, 0, 1 << 13},
		{specs.IOPRIO_CLASS_BE, 7, 2<<13 | 7},
		{specs.IOPRIO_CLASS_IDLE, 4, 3<<13 | 4},
	} {
		got, err := ioPriorityOf(&specs.LinuxIOPriority{Class: test.class, Priority: test.level})
		if err != nil || *got != test.want {
			t.Errorf("%s %d: got %v, %v, want %#x", test.class, test.level, got, err, test.want)
		}
	}
	if got, err := ioPriorityOf(nil); got != nil || err != nil {
		t.Errorf("nil: got %v, %v", got, err)
	}
}

func TestAffinityIsKept(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ from, want *specs.CPUAffinity }{
		{nil, nil},
		{&specs.CPUAffinity{}, nil},
		{&specs.CPUAffinity{Final: "1"}, &specs.CPUAffinity{Final: "1"}},
	} {
		config := minimal()
		config.Process.ExecCPUAffinity = test.from
		plan, err := Translate(config, testBundle, nil)
		if err != nil {
			t.Fatal(err)
		}
		got := plan.Process.ExecCPUAffinity
		if (got == nil) != (test.want == nil) || got != nil && *got != *test.want {
			t.Errorf("%+v: got %+v, want %+v", test.from, got, test.want)
		}
	}
}
