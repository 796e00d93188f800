package linux

import (
	"fmt"
	"os"
	"runtime"
	"testing"

	"eggrun/internal/need"

	"golang.org/x/sys/unix"
)

// TestMoveLink moves a device with addresses between two namespaces.
func TestMoveLink(t *testing.T) {
	if !isolated(t, unix.CLONE_NEWNET) {
		return
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	child := spawn(t, SpawnRequest{New: unix.CLONE_NEWNET})
	netNS, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", child.PID))
	if err != nil {
		t.Fatal(err)
	}
	defer netNS.Close()
	need.That(t, "veth", func() error { return addVeth("moving", "staying") })
	links, err := Links()
	if err != nil {
		t.Fatal(err)
	}
	index := links["moving"]
	if index == 0 || links["lo"] == 0 || links["staying"] == 0 {
		t.Fatalf("links %v, want three", links)
	}

	wantErrno(t, MoveLink(links["lo"], netNS, "lo2"), unix.EINVAL)
	// 10.0.0.2/24, global, permanent, and one of link scope.
	global := Address{unix.AF_INET, 24, 0, unix.RT_SCOPE_UNIVERSE, 0, 0, 0, 0}
	global = append(global, attribute(unix.IFA_LOCAL, []byte{10, 0, 0, 2})...)
	local := append(Address{unix.AF_INET, 24, 0, unix.RT_SCOPE_LINK, 0, 0, 0, 0}, attribute(unix.IFA_LOCAL, []byte{10, 0, 1, 2})...)
	for _, address := range []Address{global, local} {
		if err := AddAddress(index, address); err != nil {
			t.Fatal(err)
		}
	}
	wantErrno(t, AddAddress(index, global), unix.EEXIST)
	addresses, err := LastingAddresses(index)
	if err != nil || len(addresses) != 1 {
		t.Fatalf("lasting addresses %v, %v, want one", addresses, err)
	}
	if err := MoveLink(index, netNS, "net%d"); err != nil {
		t.Fatal(err)
	}
	if links, err = Links(); err != nil || links["moving"] != 0 {
		t.Errorf("links %v, %v, want it gone", links, err)
	}

	onThread(t, func() error {
		if err := unix.Setns(int(netNS.Fd()), unix.CLONE_NEWNET); err != nil {
			return err
		}
		links, err := Links()
		if err != nil {
			return err
		}
		index := links["net0"]
		if index == 0 {
			t.Fatalf("links %v, want net0", links)
		}
		if left, err := LastingAddresses(index); err != nil || len(left) != 0 {
			t.Errorf("addresses after the move %v, %v, want none", left, err)
		}
		if err := AddAddress(index, addresses[0]); err != nil {
			return err
		}
		again, err := LastingAddresses(index)
		wantEqual(t, "number of addresses", len(again), 1)
		if err != nil {
			return err
		}
		return SetLinkUp(index)
	})
}

// addVeth makes a pair of devices.
func addVeth(name, peer string) error {
	nest := func(kind uint16, parts ...[]byte) []byte {
		var body []byte
		for _, part := range parts {
			body = append(body, part...)
		}
		return attribute(kind, body)
	}
	const vethInfoPeer = 1 // linux/veth.h
	return requestNetlink(unix.RTM_NEWLINK, unix.NLM_F_CREATE|unix.NLM_F_EXCL, linkHeader(0, 0),
		attribute(unix.IFLA_IFNAME, []byte(name)),
		nest(unix.IFLA_LINKINFO,
			attribute(unix.IFLA_INFO_KIND, []byte("veth")),
			nest(unix.IFLA_INFO_DATA, nest(vethInfoPeer, linkHeader(0, 0), attribute(unix.IFLA_IFNAME, []byte(peer))))))
}
