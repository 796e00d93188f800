package linux

import (
	"bytes"
	"os"
)

// HasAppArmor tells whether the kernel has AppArmor, and has not been told at
// boot to leave it off. See apparmor(7).
func HasAppArmor() bool {
	enabled, err := os.ReadFile("/sys/module/apparmor/parameters/enabled")
	return err == nil && bytes.HasPrefix(enabled, []byte("Y"))
}
