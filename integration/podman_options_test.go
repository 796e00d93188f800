package integration

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

func podmanIsolationCases() []podmanCase {
	return []podmanCase{
		{name: "read-only", run: func(t *testing.T, p *podman) {
			const script = "touch /x 2>/dev/null && echo root; touch /tmp/x && echo tmp; touch /run/x && echo run; touch /dev/shm/x && echo shm"
			equal(t, "writable places", p.output(script, "--read-only"), "tmp\nrun\nshm")
			equal(t, "without tmpfs", p.output("touch /x /tmp/x 2>/dev/null || echo none", "--read-only", "--read-only-tmpfs=false"), "none")
		}},
		{name: "tmpfs", run: func(t *testing.T, p *podman) {
			equal(t, "mount", p.output("grep -c ' /data tmpfs .*size=1024k' /proc/mounts; touch /data/x && echo ok", "--tmpfs", "/data:rw,size=1024k"), "1\nok")
		}},
		{name: "volumes", run: podmanVolumes},
		{name: "user", run: func(t *testing.T, p *podman) {
			equal(t, "by number", p.output("id -u; id -g", "--user", "1234:5678"), "1234\n5678")
			equal(t, "by name", p.output("id -u; echo $HOME", "--user", "tester"), "1000\n/home/tester")
			equal(t, "more groups", p.output("id -G", "--user", "1000:1000", "--group-add", "5", "--group-add", "77"), "1000 5 77")
		}},
		{name: "capabilities", run: func(t *testing.T, p *podman) {
			const script = "grep -e CapEff -e CapBnd /proc/self/status | cut -f2 | tr '\\n' ' '"
			equal(t, "none", strings.TrimSpace(p.output(script, "--cap-drop", "all")), "0000000000000000 0000000000000000")
			equal(t, "two", strings.TrimSpace(p.output(script, "--cap-drop", "all", "--cap-add", "CHOWN,NET_ADMIN")), "0000000000001001 0000000000001001")
			equal(t, "chown without the capability", p.output("chown 1 /tmp 2>/dev/null || echo refused", "--cap-drop", "CHOWN"), "refused")
		}},
		{name: "privileged", run: func(t *testing.T, p *podman) {
			got := p.output("mount -t tmpfs x /tmp && echo mounted; ls /dev/kmsg; touch /sys/fs/cgroup/x 2>/dev/null; cat /proc/kcore >/dev/null 2>&1; echo end", "--privileged")
			equal(t, "output", got, "mounted\n/dev/kmsg\nend")
		}},
		{name: "device", run: func(t *testing.T, p *podman) {
			equal(t, "use", p.output("head -c 2 /dev/mine | od -An -tx1", "--device", "/dev/zero:/dev/mine"), " 00 00")
			const script = "exec 2>/dev/null; (exec </dev/mine) && echo read; (exec >/dev/mine) && echo written; true"
			equal(t, "read and write", p.output(script, "--device", "/dev/loop-control:/dev/mine"), "read\nwritten")
			equal(t, "read", p.output(script, "--device", "/dev/loop-control:/dev/mine:r"), "read")
		}},
		{name: "hostname", run: func(t *testing.T, p *podman) {
			equal(t, "hostname", p.output("hostname; cat /etc/hostname", "--hostname", "egg.example"), "egg.example\negg.example")
		}},
		{name: "seccomp", run: podmanSeccomp},
		{name: "no new privileges", run: func(t *testing.T, p *podman) {
			equal(t, "status", p.output("grep NoNewPrivs /proc/self/status | cut -f2", "--security-opt", "no-new-privileges"), "1")
			equal(t, "status by default", p.output("grep NoNewPrivs /proc/self/status | cut -f2"), "0")
		}},
		{name: "init process", needs: "catatonit", need: haveCatatonit, run: func(t *testing.T, p *podman) {
			got := p.output("tr '\\0' ' ' </proc/1/cmdline; sh -c 'sleep 0.01 &'; exit 0", "--init")
			if !strings.Contains(got, "catatonit") && !strings.Contains(got, "/dev/init") && !strings.Contains(got, "/run/podman-init") {
				t.Errorf("process 1: %q", got)
			}
			r := p.run("--init", image, "sh", "-c", "exit 6")
			equal(t, "exit status", r.code, 6)
		}},
		{name: "masked", run: func(t *testing.T, p *podman) {
			equal(t, "unmask", p.output("cat /proc/timer_list 2>/dev/null | head -c 1 | wc -c"), "0")
		}},
		{name: "host namespaces", run: podmanHostNamespaces},
		{name: "user namespace", run: func(t *testing.T, p *podman) {
			got := p.output("tr -s ' ' </proc/self/uid_map; id -u; touch /made && echo ok", "--uidmap", "0:100000:2000", "--gidmap", "0:100000:2000")
			equal(t, "output", strings.Join(strings.Fields(got), " "), "0 100000 2000 0 ok")
		}},
		{name: "sysctl and shm", run: func(t *testing.T, p *podman) {
			got := p.output("cat /proc/sys/net/ipv4/ip_forward; grep -c ' /dev/shm .*size=1000k' /proc/mounts", "--sysctl", "net.ipv4.ip_forward=1", "--shm-size", "1000k")
			equal(t, "output", got, "1\n1")
		}},
		{name: "preserve descriptors", run: func(t *testing.T, p *podman) {
			read, write, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = read.Close() }()
			cmd := p.command(p.runArgs("--rm", "--preserve-fds", "1", image, "sh", "-c", "echo through >&3")...)
			cmd.ExtraFiles = []*os.File{write}
			if err := suite.reaper.start(cmd); err != nil {
				t.Fatal(err)
			}
			_ = write.Close()
			_ = suite.reaper.wait(cmd)
			buffer := make([]byte, 100)
			n, _ := read.Read(buffer)
			equal(t, "pipe", string(buffer[:n]), "through\n")
		}},
	}
}

func haveCatatonit() error {
	_, err := os.Stat("/usr/libexec/podman/catatonit")
	return err
}

func podmanVolumes(t *testing.T, p *podman) {
	volume := makeDir(t, filepath.Join(p.dir, "volume"))
	if p.store.user != nil {
		p.store.user.own(t, volume)
	}
	writeFile(t, filepath.Join(volume, "file"), "text\n", 0o644)
	equal(t, "read-only", p.output("cat /vol/file; touch /vol/x 2>/dev/null || echo refused", "-v", volume+":/vol:ro"), "text\nrefused")
	for _, options := range []string{"", ":rw", ":z", ":Z", ":rslave", ":nosuid,nodev,noexec"} {
		got := p.output("cat /vol/file && echo new >/vol/new && cat /vol/new", "-v", volume+":/vol"+options)
		equal(t, "with "+options, got, "text\nnew")
	}
	equal(t, "a file", p.output("cat /etc/motd", "-v", filepath.Join(volume, "file")+":/etc/motd:ro"), "text")
	p.output("echo kept >/vol/kept", "-v", filepath.Base(p.dir)+":/vol")
	equal(t, "a named volume", p.output("cat /vol/kept", "-v", filepath.Base(p.dir)+":/vol"), "kept")
	p.ok("volume", "rm", filepath.Base(p.dir))
}

func podmanSeccomp(t *testing.T, p *podman) {
	profile := filepath.Join(p.dir, "seccomp.json")
	writeFile(t, profile, `{"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [{"names": ["mkdir", "mkdirat"], "action": "SCMP_ACT_ERRNO", "errnoRet": 99}]}`, 0o644)
	const script = "mkdir /d 2>&1 && echo made; grep ^Seccomp: /proc/self/status | cut -f2"
	equal(t, "by default", p.output(script), "made\n2")
	equal(t, "own profile", p.output(script, "--security-opt", "seccomp="+profile), "mkdir: can't create directory '/d': Cannot assign requested address\n2")
	equal(t, "unconfined", p.output(script, "--security-opt", "seccomp=unconfined"), "made\n0")
}

func podmanHostNamespaces(t *testing.T, p *podman) {
	own := func(name string) string { return procLink(t, os.Getpid(), "ns/"+name) }
	for option, name := range map[string]string{"--pid": "pid", "--ipc": "ipc", "--uts": "uts", "--network": "net"} {
		equal(t, "namespace "+name, p.output("readlink /proc/self/ns/"+name, option, "host"), own(name))
		if got := p.output("readlink /proc/self/ns/" + name); got == own(name) {
			t.Errorf("namespace %s is the host's without %s", name, option)
		}
	}
}

func podmanLimitCases() []podmanCase {
	return []podmanCase{
		{name: "ulimit", run: func(t *testing.T, p *podman) {
			equal(t, "limits", p.output("ulimit -n; ulimit -Hn; ulimit -c", "--ulimit", "nofile=100:200", "--ulimit", "core=0:0", "--ulimit", "nproc=4096:4096"), "100\n200\n0")
		}},
		{name: "memory", needs: "limits", need: controllers("cpu", "memory", "pids"), run: func(t *testing.T, p *podman) {
			id := p.detach("--memory", "64m", "--cpus", "0.5", "--pids-limit", "50", image, "sleep", "1000")
			pid, err := strconv.Atoi(p.ok("inspect", "--format", "{{.State.Pid}}", id))
			if err != nil {
				t.Fatal(err)
			}
			cgroup := cgroupOf(t, pid, "memory")
			equal(t, "memory", cgroupFile(t, cgroup, "memory", "memory.limit_in_bytes", "memory.max"), "67108864")
			equal(t, "pids", cgroupFile(t, cgroup, "pids", "pids.max", "pids.max"), "50")
			quota := cgroupFile(t, cgroup, "cpu", "cpu.cfs_quota_us", "cpu.max")
			if quota != "50000" && quota != "50000 100000" {
				t.Errorf("cpu quota: %q", quota)
			}
		}},
		{name: "one process", needs: "limits", need: controllers("pids"), run: func(t *testing.T, p *podman) {
			equal(t, "output", p.output("echo alone", "--pids-limit", "1"), "alone")
		}},
		{name: "out of memory", needs: "limits", need: controllers("memory"), run: func(t *testing.T, p *podman) {
			id := p.detach("--memory", "20m", "--memory-swap", "20m", image, "dd", "if=/dev/zero", "of=/dev/null", "bs=100M", "count=1")
			equal(t, "exit status", p.ok("wait", id), "137")
		}},
		{name: "stats", needs: "numbers of processes", need: controllers("pids"), run: func(t *testing.T, p *podman) {
			id := p.detach(image, "sleep", "1000")
			p.wantTop("COMMAND sleep 1000", id, "args")
			contains(t, "stats", p.ok("stats", "--no-stream", "--format", "{{.PIDs}}", id), "1")
		}},
	}
}
