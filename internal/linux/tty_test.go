package linux

import (
	"fmt"
	"os"
	"testing"

	"eggrun/internal/need"

	"golang.org/x/sys/unix"
)

func TestOpenPeer(t *testing.T) {
	t.Parallel()
	var master *os.File
	need.That(t, "pseudoterminals", func() (err error) {
		master, err = os.OpenFile("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY, 0)
		return err
	})
	defer master.Close()
	slave, err := OpenPeer(master)
	if err != nil {
		t.Fatal(err)
	}
	defer slave.Close()
	number, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	var stat unix.Stat_t
	if err := unix.Fstat(int(slave.Fd()), &stat); err != nil {
		t.Fatal(err)
	}
	wantEqual(t, "device", fmt.Sprint(unix.Major(stat.Rdev), unix.Minor(stat.Rdev)), fmt.Sprint(136, number))
	flags, err := unix.FcntlInt(slave.Fd(), unix.F_GETFD, 0)
	wantEqual(t, "flags, error", fmt.Sprint(flags, err), fmt.Sprint(unix.FD_CLOEXEC, nil))
	if _, err := slave.WriteString("to the master"); err != nil {
		t.Fatal(err)
	}
	text := make([]byte, 100)
	n, err := master.Read(text)
	wantEqual(t, "text, error", fmt.Sprint(string(text[:n]), " ", err), "to the master <nil>")
	null, err := os.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	_, err = OpenPeer(null)
	wantErrno(t, err, unix.ENOTTY)
}
