package seccomp

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// cacheFormat changes with the layout of an entry and with everything in this
// package that changes a program. Binaries of one size from one tree, as a
// developer makes them, are told apart by it alone.
const cacheFormat = 2

// An entry is the magic, the SHA-256 of what follows it, the flags (4 bytes) and
// the program.
const (
	cacheMagic = "eggSCMP\n"
	hashEnd    = len(cacheMagic) + sha256.Size
	headerLen  = hashEnd + 4
)

// cached returns the filter of profile from cacheDir, or else what compile
// returns, which it keeps there. kind separates profiles that are compiled in
// different ways. Nothing that is wrong with the cache is an
// error: the filter is then compiled each time.
func cached(cacheDir, kind string, profile *specs.LinuxSeccomp, compile func() (*Filter, error)) (*Filter, error) {
	dir := openCacheDir(cacheDir)
	if dir == nil {
		return compile()
	}
	defer dir.Close()
	key, err := cacheKey(kind, profile)
	if err != nil {
		return compile()
	}
	if f := readEntry(dir, key); f != nil {
		return f, nil
	}
	f, err := compile()
	if err != nil {
		return nil, err
	}
	writeEntry(dir, key, f)
	return f, nil
}

// openCacheDir opens path, creating it if need be, or returns nil if it must not
// be used: who can write there decides what a container may do. All that follows
// goes through the descriptor, so that nobody can put another directory in its
// place after the check.
func openCacheDir(path string) *os.File {
	if path == "" || os.MkdirAll(path, 0o700) != nil {
		return nil
	}
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	dir := os.NewFile(uintptr(fd), path)
	if !private(dir, unix.S_IFDIR) {
		dir.Close()
		return nil
	}
	return dir
}

// private says whether file is of the given type, belongs to the effective user
// and is writable by no one else. A POSIX ACL that lets others write shows in the
// group bits.
func private(file *os.File, typ uint32) bool {
	var st unix.Stat_t
	err := unix.Fstat(int(file.Fd()), &st)
	return err == nil && st.Mode&unix.S_IFMT == typ && st.Uid == uint32(os.Geteuid()) && st.Mode&0o022 == 0
}

// readEntry returns the filter that is kept under key, or nil.
func readEntry(dir *os.File, key string) *Filter {
	// O_NONBLOCK: a fifo in its place must not stop us.
	fd, err := unix.Openat(int(dir.Fd()), key, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	file := os.NewFile(uintptr(fd), key)
	defer file.Close()
	if !private(file, unix.S_IFREG) {
		return nil
	}
	entry, err := io.ReadAll(io.LimitReader(file, int64(headerLen+maxInsns*insnSize+1)))
	if err != nil {
		return nil
	}
	return decodeEntry(entry)
}

// decodeEntry returns the filter of an entry, or nil if a byte of it is wrong.
func decodeEntry(entry []byte) *Filter {
	if len(entry) < headerLen || !bytes.HasPrefix(entry, []byte(cacheMagic)) {
		return nil
	}
	sum := sha256.Sum256(entry[hashEnd:])
	if !bytes.Equal(sum[:], entry[len(cacheMagic):hashEnd]) {
		return nil
	}
	f := &Filter{
		Program: entry[headerLen:],
		Flags:   uint(binary.NativeEndian.Uint32(entry[hashEnd:])),
	}
	if f.check() != nil {
		return nil
	}
	return f
}

func encodeEntry(f *Filter) []byte {
	body := binary.NativeEndian.AppendUint32(nil, uint32(f.Flags))
	body = append(body, f.Program...)
	sum := sha256.Sum256(body)
	return append(append([]byte(cacheMagic), sum[:]...), body...)
}

// writeEntry keeps f under key. Another process may read or write the same entry
// meanwhile; the rename shows it either the old one or the whole new one. There
// is no fsync: what a crash leaves does not match its hash.
func writeEntry(dir *os.File, key string, f *Filter) {
	temp := "." + key[:16] + "." + rand.Text()
	fd, err := unix.Openat(int(dir.Fd()), temp, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return
	}
	file := os.NewFile(uintptr(fd), temp)
	_, err = file.Write(encodeEntry(f))
	if cerr := file.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = unix.Renameat(int(dir.Fd()), temp, int(dir.Fd()), key)
	}
	if err != nil {
		_ = unix.Unlinkat(int(dir.Fd()), temp, 0)
	}
}

// cacheKey hashes everything that the filter of profile depends on. The kernel's
// release is a part, because libseccomp tries what the kernel can do.
func cacheKey(kind string, profile *specs.LinuxSeccomp) (string, error) {
	var uts unix.Utsname
	if err := unix.Uname(&uts); err != nil {
		return "", err
	}
	// Whom the agent is told about is no part of the program, and differs from
	// container to container.
	compiled := *profile
	compiled.ListenerPath, compiled.ListenerMetadata = "", ""
	// A struct and its fields marshal in a fixed order, so equal profiles are
	// equal bytes; but an empty list of flags, unlike none, is left out.
	b, err := json.Marshal(struct {
		Format     int
		Kind       string
		Arch       string
		Libseccomp string
		Kernel     string
		Build      string
		NoFlags    bool
		Profile    *specs.LinuxSeccomp
	}{
		cacheFormat, kind, runtime.GOARCH, LibseccompVersion(), unix.ByteSliceToString(uts.Release[:]), buildID(),
		profile.Flags != nil && len(profile.Flags) == 0, &compiled,
	})
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:]), nil
}

// buildID tells one build of this program from the next: by what the linker
// recorded, and by the size and date of the executable.
func buildID() string {
	var id string
	if info, ok := debug.ReadBuildInfo(); ok {
		id = info.String()
	}
	if st, err := os.Stat("/proc/self/exe"); err == nil {
		id += fmt.Sprintf("%d %d", st.Size(), st.ModTime().UnixNano())
	}
	return id
}
