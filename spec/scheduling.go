package spec

import (
	"math"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// Scheduler is process.scheduler in the numbers of struct sched_attr, see
// sched_setattr(2).
type Scheduler struct {
	// Policy is a SCHED_* number, Flags are SCHED_FLAG_* bits.
	Policy   uint32 `json:"policy"`
	Flags    uint64 `json:"flags,omitempty"`
	Nice     int32  `json:"nice,omitempty"`
	Priority uint32 `json:"priority,omitempty"`
	// Runtime, Deadline and Period are nanoseconds; SCHED_DEADLINE only.
	Runtime  uint64 `json:"runtime,omitempty"`
	Deadline uint64 `json:"deadline,omitempty"`
	Period   uint64 `json:"period,omitempty"`
}

// schedISO is a number that Linux keeps free for a policy that it doesn't have.
const schedISO = 4

var schedulerPolicies = map[specs.LinuxSchedulerPolicy]uint32{
	specs.SchedOther:    unix.SCHED_NORMAL,
	specs.SchedFIFO:     unix.SCHED_FIFO,
	specs.SchedRR:       unix.SCHED_RR,
	specs.SchedBatch:    unix.SCHED_BATCH,
	specs.SchedISO:      schedISO,
	specs.SchedIdle:     unix.SCHED_IDLE,
	specs.SchedDeadline: unix.SCHED_DEADLINE,
}

var schedulerFlags = map[specs.LinuxSchedulerFlag]uint64{
	specs.SchedFlagResetOnFork:  unix.SCHED_FLAG_RESET_ON_FORK,
	specs.SchedFlagReclaim:      unix.SCHED_FLAG_RECLAIM,
	specs.SchedFlagDLOverrun:    unix.SCHED_FLAG_DL_OVERRUN,
	specs.SchedFlagKeepPolicy:   unix.SCHED_FLAG_KEEP_POLICY,
	specs.SchedFlagKeepParams:   unix.SCHED_FLAG_KEEP_PARAMS,
	specs.SchedFlagUtilClampMin: unix.SCHED_FLAG_UTIL_CLAMP_MIN,
	specs.SchedFlagUtilClampMax: unix.SCHED_FLAG_UTIL_CLAMP_MAX,
}

// schedulerOf refuses what sched_setattr(2) would refuse with EINVAL, which
// tells nobody the reason, and what it would silently take for something else.
func schedulerOf(from *specs.Scheduler) (*Scheduler, error) {
	if from == nil {
		return nil, nil
	}
	const field = "process.scheduler"
	policy, ok := schedulerPolicies[from.Policy]
	if !ok {
		return nil, invalidValue(field+".policy", string(from.Policy), "no such policy")
	}
	s := &Scheduler{
		Policy: policy, Nice: from.Nice, Priority: uint32(from.Priority),
		Runtime: from.Runtime, Deadline: from.Deadline, Period: from.Period,
	}
	for i, name := range from.Flags {
		bit, ok := schedulerFlags[name]
		if !ok {
			return nil, invalidValue(at(field+".flags", i), string(name), "no such flag")
		}
		s.Flags |= bit
	}
	// The kernel would cut it to the nearest that there is.
	if from.Nice < -20 || from.Nice > 19 {
		return nil, invalidValue(field+".nice", int64(from.Nice), "must be from -20 to 19")
	}
	isRealTime := policy == unix.SCHED_FIFO || policy == unix.SCHED_RR
	switch {
	case isRealTime && (from.Priority < 1 || from.Priority > 99):
		return nil, invalidValue(field+".priority", int64(from.Priority), "must be from 1 to 99 with %s", from.Policy)
	case !isRealTime && from.Priority != 0:
		return nil, invalidValue(field+".priority", int64(from.Priority), "must be 0 with %s", from.Policy)
	}
	return s, checkDeadline(field, from)
}

func checkDeadline(field string, from *specs.Scheduler) error {
	if from.Policy != specs.SchedDeadline {
		if from.Runtime != 0 || from.Deadline != 0 || from.Period != 0 {
			return invalid(field, "runtime, deadline and period are for SCHED_DEADLINE only")
		}
		return nil
	}
	period := from.Period
	if period == 0 { // what the kernel takes then
		period = from.Deadline
	}
	// The least runtime is 1 << DL_SCALE of the kernel.
	if from.Runtime < 1024 || from.Runtime > from.Deadline || from.Deadline > period || period > math.MaxInt64 {
		return invalid(field, "want 1024 <= runtime <= deadline <= period, in nanoseconds")
	}
	return nil
}

var ioClasses = map[specs.IOPriorityClass]int{
	specs.IOPRIO_CLASS_RT:   1,
	specs.IOPRIO_CLASS_BE:   2,
	specs.IOPRIO_CLASS_IDLE: 3,
}

// ioPriorityOf returns the value for ioprio_set(2), the class from bit 13 on,
// nil where config.json is silent.
func ioPriorityOf(from *specs.LinuxIOPriority) (*int, error) {
	if from == nil {
		return nil, nil
	}
	const field = "process.ioPriority"
	class, ok := ioClasses[from.Class]
	if !ok {
		return nil, invalidValue(field+".class", string(from.Class), "no such class")
	}
	if from.Priority < 0 || from.Priority > 7 {
		return nil, invalidValue(field+".priority", from.Priority, "must be from 0 to 7")
	}
	value := class<<13 | from.Priority
	return &value, nil
}

// affinityOf checks process.execCPUAffinity, which is for those who exec into
// the container: see [ParseIDList]. It returns nil where there is nothing in it.
func affinityOf(from *specs.CPUAffinity) (*specs.CPUAffinity, error) {
	if from == nil || *from == (specs.CPUAffinity{}) {
		return nil, nil
	}
	for _, list := range []struct{ field, value string }{
		{"process.execCPUAffinity.initial", from.Initial},
		{"process.execCPUAffinity.final", from.Final},
	} {
		if list.value == "" {
			continue
		}
		if _, err := ParseIDList(list.value); err != nil {
			return nil, invalidValue(list.field, list.value, "%v", err)
		}
	}
	return from, nil
}
