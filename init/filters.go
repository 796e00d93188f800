package initproc

import (
	"fmt"
	"os"

	"eggrun/internal/linux"
	"eggrun/internal/seccomp"
	"eggrun/internal/syncsocket"

	"golang.org/x/sys/unix"
)

// filters are a container's seccomp filters, with all that is needed to load
// them without an allocation.
type filters struct {
	programs []filterProgram
	socket   int
	// notice and answer are the words with create about a listener.
	notice *syncsocket.ListenerNotice
	answer []byte
}

type filterProgram struct {
	*seccomp.Prog
	hasListener bool
}

func (s *setup) prepareFilters(socket int) (*filters, error) {
	f := &filters{socket: socket}
	for _, filter := range s.container.request.Filters {
		program, err := filter.Prog()
		if err != nil {
			return nil, err
		}
		f.programs = append(f.programs, filterProgram{program, filter.HasListener()})
	}
	proceed, err := syncsocket.Encode(syncsocket.Proceed, nil)
	if err != nil {
		return nil, err
	}
	f.answer = make([]byte, len(proceed))
	f.notice, err = syncsocket.NewListenerNotice()
	return f, err
}

// load loads the filters in their order.
func (f *filters) load() error {
	for _, program := range f.programs {
		if program.hasListener {
			if err := f.loadListener(program); err != nil {
				return err
			}
			continue
		}
		if errno := program.Load(false); errno != 0 {
			return fmt.Errorf("load seccomp filter: errno %d", int(errno))
		}
	}
	return nil
}

// loadListener loads a filter that hands calls to an agent and waits until
// create has given the agent the listener.
//
// The filter holds for what follows too, and there is no agent yet. Only
// write(2) comes before create knows, which no profile hands to an agent, see
// package spec; with anything after it init waits for the agent, as the program
// would.
func (f *filters) loadListener(program filterProgram) error {
	listener, errno := program.LoadListener()
	if errno == unix.EBUSY {
		return fmt.Errorf("load seccomp filter: an outer filter has an agent already, and Linux takes one (EBUSY)")
	}
	if errno != 0 {
		return fmt.Errorf("load seccomp filter: errno %d", int(errno))
	}
	f.notice.SetFD(listener)
	if errno := linux.RawWrite(f.socket, f.notice.Message); errno != 0 {
		return os.NewSyscallError("report seccomp listener", errno)
	}
	awaitAnswer(f.socket, f.answer)
	// With a copy left, calls would wait for an agent that has ended instead
	// of failing with ENOSYS.
	_ = unix.Close(listener)
	return nil
}
