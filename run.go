package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"time"

	"eggrun/container"
	"eggrun/egress"
	"eggrun/internal/state"

	"github.com/containerd/console"
	"github.com/opencontainers/runtime-spec/specs-go"
	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"
)

var runCommand = &cli.Command{
	Name:      "run",
	Usage:     "create a container, start it, wait for it and delete it",
	ArgsUsage: "ID",
	Flags: append([]cli.Flag{
		&cli.BoolFlag{Name: "detach", Aliases: []string{"d"}, Usage: "do not wait"},
		&cli.BoolFlag{Name: "keep", Usage: "do not delete it when it has ended"},
		&cli.BoolFlag{Name: "no-subreaper", Usage: "leave the container's orphans to the host's init"},
	}, createFlags...),
	Action: func(c *cli.Context) error {
		if _, err := oneID(c); err != nil {
			return err
		}
		options, err := createOptions(c)
		if err != nil {
			return err
		}
		if done, err := asRoot(options.Preserve); done || err != nil {
			return err
		}
		if c.Bool("detach") {
			return runDetached(options)
		}
		if !c.Bool("no-subreaper") {
			if err := container.BecomeSubreaper(); err != nil {
				return err
			}
		}
		stderr := c.App.ErrWriter
		if byEngine(c) {
			stderr = io.Discard
		}
		return runForeground(options, c.Bool("keep"), stderr, func() (*container.Container, error) { return createAndStart(options) })
	},
}

func runDetached(options *container.CreateOptions) error {
	ctr, err := container.Create(options)
	if err != nil {
		return err
	}
	notifier, err := startNotifying(ctr, options)
	if err != nil {
		err = errors.Join(err, remove(ctr, true))
		return errors.Join(err, ctr.Close())
	}
	return errors.Join(ctr.Close(), notifier.Relay(0))
}

// startNotifying starts a container that this process created.
func startNotifying(ctr *container.Container, options *container.CreateOptions) (*container.Notifier, error) {
	notifier, err := ctr.ListenNotify(options.NotifySocket)
	if err != nil {
		return nil, err
	}
	if err := ctr.Start(); err != nil {
		notifier.Close()
		return nil, err
	}
	return notifier, nil
}

// createAndStart makes a container whose program runs.
func createAndStart(options *container.CreateOptions) (*container.Container, error) {
	ctr, err := container.Create(options)
	if err != nil {
		return nil, err
	}
	notifier, err := startNotifying(ctr, options)
	if err != nil {
		return nil, errors.Join(err, remove(ctr, true), ctr.Close())
	}
	// A manager that can't be told is no reason to end what runs.
	go func() { _ = notifier.Relay(os.Getpid()) }()
	return ctr, nil
}

// runForeground waits for the container that begin makes, with our terminal as
// its own.
func runForeground(options *container.CreateOptions, keep bool, stderr io.Writer, begin func() (*container.Container, error)) error {
	signals, begun := container.NotifyAll(), time.Now()
	terminal := &foregroundTerminal{}
	if options.Console == nil {
		options.Console = terminal.attach
		options.ConsoleOptional = true
		options.ConsoleSize = terminalSize()
	}
	defer terminal.restore()
	ctr, err := begin()
	if err != nil {
		return err
	}
	hasPolicy := ctr.HasPolicy()
	// Others may look at it, signal it and delete it while we wait.
	if err := ctr.Close(); err != nil {
		return err
	}
	status, err := ctr.Wait(signals)
	if err != nil {
		return err
	}
	terminal.finish()
	if !keep {
		err := withContainerLocked(options, func(ctr *container.Container) error { return remove(ctr, true) })
		if err != nil {
			return err
		}
	}
	terminal.restore()
	if hasPolicy {
		summarise(stderr, options.ID, egress.Where{RuntimeRoot: options.RuntimeRoot, Rootless: options.Rootless}, begun)
	}
	if status != 0 {
		return exitStatus(status)
	}
	return nil
}

// withContainerLocked locks the container again, unless somebody has deleted it.
func withContainerLocked(options *container.CreateOptions, use func(*container.Container) error) error {
	ctr, err := container.Lock(options.RuntimeRoot, options.ID)
	if errors.Is(err, state.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(use(ctr), ctr.Close())
}

// foregroundTerminal connects the container's terminal with ours.
type foregroundTerminal struct {
	ours   console.Console
	master *os.File
	copied chan struct{}
}

// attach takes the master of the container's terminal.
func (t *foregroundTerminal) attach(master *os.File) error {
	err := t.connect(master)
	if err != nil {
		master.Close()
		return fmt.Errorf("process.terminal: %w", err)
	}
	resized := make(chan os.Signal, 1)
	signal.Notify(resized, unix.SIGWINCH)
	go func() {
		for range resized {
			_ = t.resize()
		}
	}()
	go func() { _, _ = master.ReadFrom(os.Stdin) }()
	go func() {
		defer close(t.copied)
		_, _ = os.Stdout.ReadFrom(master) // ends with EIO when the last slave closes
		// Where nobody reads our output the program is not to wait for who does.
		master.Close()
	}()
	return nil
}

func (t *foregroundTerminal) connect(master *os.File) error {
	file, err := ourTerminal()
	if err != nil {
		return err
	}
	ours, err := console.ConsoleFromFile(file)
	if err != nil {
		return err
	}
	// Our terminal turns line feeds into line ends, and where the output goes
	// elsewhere nobody should.
	if err := console.ClearONLCR(master.Fd()); err != nil {
		return err
	}
	if err := ours.SetRaw(); err != nil {
		return err
	}
	t.ours, t.master, t.copied = ours, master, make(chan struct{})
	_ = t.resize()
	return nil
}

// ourTerminal returns the terminal that somebody sits at: a standard stream, of
// which the others may be redirected, or the controlling one.
func ourTerminal() (*os.File, error) {
	for _, f := range []*os.File{os.Stdin, os.Stdout, os.Stderr} {
		if _, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS); err == nil {
			return f, nil
		}
	}
	return os.OpenFile("/dev/tty", os.O_RDWR, 0)
}

// terminalSize returns the size of our terminal, nil where there is none.
func terminalSize() *specs.Box {
	terminal, err := ourTerminal()
	if err != nil {
		return nil
	}
	size, err := unix.IoctlGetWinsize(int(terminal.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return nil
	}
	return &specs.Box{Height: uint(size.Row), Width: uint(size.Col)}
}

func (t *foregroundTerminal) resize() error {
	size, err := t.ours.Size()
	if err != nil {
		return err
	}
	return unix.IoctlSetWinsize(int(t.master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: size.Height, Col: size.Width})
}

// finish waits until all output is written.
func (t *foregroundTerminal) finish() {
	if t.master != nil {
		<-t.copied
	}
}

// restore gives our terminal its old mode.
func (t *foregroundTerminal) restore() {
	if t.ours != nil {
		_ = t.ours.Reset()
	}
}
