package inside

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// A match is a piece of a rule: what a packet must be, or what happens to it.
// Each loads what it compares into the same register.
type match []expr.Any

const register = unix.NFT_REG_1

// rule joins pieces.
func rule(parts ...match) match { return slices.Concat(parts...) }

func equals(op expr.CmpOp, data ...byte) expr.Any {
	return &expr.Cmp{Op: op, Register: register, Data: data}
}

func native(v uint32) []byte { return binary.NativeEndian.AppendUint32(nil, v) }

// meta compares one of the packet's own properties.
func meta(key expr.MetaKey, op expr.CmpOp, data ...byte) match {
	return match{&expr.Meta{Key: key, Register: register}, equals(op, data...)}
}

// loopbackIndex is that of lo in every network namespace.
const loopbackIndex = 1

func leavesBy(index uint32) match { return meta(expr.MetaKeyOIF, expr.CmpOpEq, native(index)...) }
func entersBy(index uint32) match { return meta(expr.MetaKeyIIF, expr.CmpOpEq, native(index)...) }

// protocol is what lies above IP: unix.IPPROTO_TCP and so on.
func protocol(p byte) match { return meta(expr.MetaKeyL4PROTO, expr.CmpOpEq, p) }

// marked is a packet of a socket from [openMarked].
func marked() match { return meta(expr.MetaKeyMARK, expr.CmpOpEq, native(mark)...) }

func unmarked() match { return meta(expr.MetaKeyMARK, expr.CmpOpNeq, native(mark)...) }

func network(offset, size uint32) expr.Any {
	return &expr.Payload{DestRegister: register, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: size}
}

func transport(offset, size uint32) expr.Any {
	return &expr.Payload{DestRegister: register, Base: expr.PayloadBaseTransportHeader, Offset: offset, Len: size}
}

// port is the destination port of TCP or UDP.
func port(p uint16) match {
	return match{transport(2, 2), equals(expr.CmpOpEq, binary.BigEndian.AppendUint16(nil, p)...)}
}

// portIn needs the destination port to be in a set.
func portIn(s *nftables.Set) match {
	return match{transport(2, 2), &expr.Lookup{SourceRegister: register, SetName: s.Name, SetID: s.ID}}
}

// An end is one of the two addresses of a packet.
type end struct{ offset4, offset6 uint32 }

// Offsets in the headers of IPv4 and IPv6.
var (
	from = end{12, 8}
	to   = end{16, 24}
)

// load puts the address into the register, of packets of the family of like.
func (e end) load(like netip.Addr) match {
	if like.Is4() {
		return append(meta(expr.MetaKeyNFPROTO, expr.CmpOpEq, unix.NFPROTO_IPV4), network(e.offset4, 4))
	}
	return append(meta(expr.MetaKeyNFPROTO, expr.CmpOpEq, unix.NFPROTO_IPV6), network(e.offset6, 16))
}

// in needs the address to be in the prefix.
func (e end) in(p netip.Prefix) match {
	first := p.Masked().Addr()
	mask := make([]byte, first.BitLen()/8)
	for bit := range p.Bits() {
		mask[bit/8] |= 0x80 >> (bit % 8)
	}
	return append(e.load(first),
		&expr.Bitwise{SourceRegister: register, DestRegister: register, Len: uint32(len(mask)), Mask: mask, Xor: make([]byte, len(mask))},
		equals(expr.CmpOpEq, first.AsSlice()...))
}

// is needs the address to be this one.
func (e end) is(a netip.Addr) match { return e.in(netip.PrefixFrom(a, a.BitLen())) }

// inSet needs the address to be, or not to be, in a set.
func (e end) inSet(s *nftables.Set, invert bool) match {
	like := netip.IPv4Unspecified()
	if s.KeyType == nftables.TypeIP6Addr {
		like = netip.IPv6Unspecified()
	}
	return append(e.load(like), &expr.Lookup{SourceRegister: register, SetName: s.Name, SetID: s.ID, Invert: invert})
}

// local compares whether the address is one of the namespace's own, which those
// of the fake range are too.
func (e end) local(op expr.CmpOp) match {
	return match{
		&expr.Fib{Register: register, ResultADDRTYPE: true, FlagSADDR: e == from, FlagDADDR: e == to},
		equals(op, native(unix.RTN_LOCAL)...),
	}
}

// state needs the packet's connection to be in one of the states.
func state(bits uint32) match {
	return match{
		&expr.Ct{Register: register, Key: expr.CtKeySTATE},
		&expr.Bitwise{SourceRegister: register, DestRegister: register, Len: 4, Mask: native(bits), Xor: native(0)},
		equals(expr.CmpOpNeq, native(0)...),
	}
}

// answers are packets in the reply direction of a connection.
func answers() match {
	const reply = 1 // IP_CT_DIR_REPLY
	return rule(state(expr.CtStateBitESTABLISHED),
		match{&expr.Ct{Register: register, Key: expr.CtKeyDIRECTION}, equals(expr.CmpOpEq, reply)})
}

// notFirst are TCP packets that can't begin a connection.
func notFirst() match {
	const fin, syn, rst, ack = 0x01, 0x02, 0x04, 0x10
	return rule(protocol(unix.IPPROTO_TCP), match{
		transport(13, 1),
		&expr.Bitwise{SourceRegister: register, DestRegister: register, Len: 1, Mask: []byte{fin | syn | rst | ack}, Xor: []byte{0}},
		equals(expr.CmpOpNeq, syn),
	})
}

// discovery are IPv6 neighbour discovery messages of a type, which only the
// kernel and raw sockets can send with the full hop limit.
func discovery(kind byte) match {
	return rule(meta(expr.MetaKeyNFPROTO, expr.CmpOpEq, unix.NFPROTO_IPV6), protocol(unix.IPPROTO_ICMPV6),
		match{network(7, 1), equals(expr.CmpOpEq, 255), transport(0, 1), equals(expr.CmpOpEq, kind)})
}

func accept() match { return match{&expr.Verdict{Kind: expr.VerdictAccept}} }
func drop() match   { return match{&expr.Verdict{Kind: expr.VerdictDrop}} }

// reset refuses a TCP connection, and refuse everything else, both at once.
func reset() match { return match{&expr.Reject{Type: unix.NFT_REJECT_TCP_RST}} }

func refuse() match {
	return match{&expr.Reject{Type: unix.NFT_REJECT_ICMPX_UNREACH, Code: unix.NFT_REJECT_ICMPX_ADMIN_PROHIBITED}}
}

// redirect sends a connection to a port of this namespace's loopback.
func redirect(p uint16) match {
	return match{
		&expr.Immediate{Register: register, Data: binary.BigEndian.AppendUint16(nil, p)},
		&expr.Redir{RegisterProtoMin: register, RegisterProtoMax: register, Flags: unix.NF_NAT_RANGE_PROTO_SPECIFIED},
	}
}
