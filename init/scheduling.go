package initproc

import (
	"errors"
	"fmt"

	"eggrun/internal/linux"
	"eggrun/spec"

	"golang.org/x/sys/unix"
)

// setPersonality sets the execution domain that the program is started in.
func (s *setup) setPersonality() error {
	if s.plan.Personality == nil {
		return nil
	}
	if err := linux.SetPersonality(*s.plan.Personality); err != nil {
		return fmt.Errorf("linux.personality: %w", err)
	}
	return nil
}

// setMemoryPolicy sets from which memory nodes the program gets its memory.
func (s *setup) setMemoryPolicy() error {
	policy := s.plan.MemoryPolicy
	if policy == nil {
		return nil
	}
	err := linux.SetMemoryPolicy(policy.Mode, spec.IDMask(policy.Nodes))
	switch {
	case errors.Is(err, unix.ENOSYS):
		return errors.New("linux.memoryPolicy: this kernel has no NUMA support (CONFIG_NUMA)")
	case errors.Is(err, unix.EINVAL):
		return fmt.Errorf("linux.memoryPolicy: %w; the kernel has no such mode or flag, or none of the nodes is there and in linux.resources.cpu.mems", err)
	case err != nil:
		return fmt.Errorf("linux.memoryPolicy: %w", err)
	}
	return nil
}

// setScheduler sets the scheduling policy of the thread that becomes the
// program. With SCHED_DEADLINE it can't fork from here on, unless the flag
// SCHED_FLAG_RESET_ON_FORK is set; the Go runtime has another thread for that.
func (s *setup) setScheduler() error {
	if s.plan.Process == nil || s.plan.Process.Scheduler == nil {
		return nil
	}
	want := s.plan.Process.Scheduler
	err := linux.SetScheduler(&unix.SchedAttr{
		Policy: want.Policy, Flags: want.Flags, Nice: want.Nice, Priority: want.Priority,
		Runtime: want.Runtime, Deadline: want.Deadline, Period: want.Period,
	})
	const field = "process.scheduler"
	isRealTime := want.Policy == unix.SCHED_FIFO || want.Policy == unix.SCHED_RR
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.EPERM) && isRealTime:
		return errors.New(field + ": a real-time policy needs CAP_SYS_NICE and, in a cgroup v1, linux.resources.cpu.realtimeRuntime")
	case errors.Is(err, unix.EPERM) && want.Policy == unix.SCHED_DEADLINE:
		return errors.New(field + ": SCHED_DEADLINE needs CAP_SYS_NICE and every CPU; drop linux.resources.cpu.cpus")
	case errors.Is(err, unix.EPERM):
		return errors.New(field + ": needs CAP_SYS_NICE")
	case errors.Is(err, unix.EINVAL):
		return fmt.Errorf("%s: %w; this kernel has no such policy or flag", field, err)
	}
	return fmt.Errorf("%s: %w", field, err)
}

// setIOPriority sets the I/O class and level of the process group that init
// leads, and so of the program.
func (s *setup) setIOPriority() error {
	if s.plan.Process == nil || s.plan.Process.IOPriority == nil {
		return nil
	}
	err := linux.SetIOPriority(*s.plan.Process.IOPriority)
	if errors.Is(err, unix.EPERM) {
		return errors.New("process.ioPriority: IOPRIO_CLASS_RT needs CAP_SYS_NICE")
	}
	if err != nil {
		return fmt.Errorf("process.ioPriority: %w", err)
	}
	return nil
}
