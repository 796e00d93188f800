# The same through podman, where it is installed, with a storage of the demo's
# own. Sourced by demo/run, after demo/allowlist.sh.

if ! command -v podman >/dev/null; then
	step "podman is not installed; its part is left out"
	return
fi

step "podman, with an image of the same root file system"
mkdir "$work/podman"
# podman keeps its locks there, whatever it is told.
mount -t tmpfs tmpfs /dev/shm
cat >"$work/podman/storage.conf" <<END
[storage]
driver = "vfs"
graphroot = "$work/podman/root"
runroot = "$work/podman/runroot"
END
# The limits: podman's own are higher than root may set without CAP_SYS_RESOURCE.
cat >"$work/podman/containers.conf" <<END
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
[engine.runtimes]
eggrun = ["$PWD/bin/eggrun"]
[network]
network_config_dir = "$work/podman/networks"
[containers]
default_ulimits = ["nofile=1024:20000", "nproc=4096:4096"]
END

podmanHere() {
	CONTAINERS_CONF=$work/podman/containers.conf CONTAINERS_STORAGE_CONF=$work/podman/storage.conf PODMAN_IGNORE_CGROUPSV1_WARNING=1 \
		podman --tmpdir "$work/podman/tmp" --runtime eggrun "$@"
}

tar -C "$bundle/rootfs" -c . | podmanHere import --quiet - localhost/demo >/dev/null

# podmanRun NETWORK COMMAND runs a command in a container with the list; what it
# says goes to $work/said.
podmanRun() {
	echo "\$ podman --runtime eggrun run --network $1 --annotation 'eggrun.domains=$domains' demo ${*:2}"
	status=0
	podmanHere run --cidfile "$work/podman/cid" --rm --network "$1" --annotation "eggrun.domains=$domains" \
		localhost/demo "${@:2}" >"$work/said" 2>&1 </dev/null || status=$?
	[ ! -e "$work/podman/cid" ] || ids+=("$(cat "$work/podman/cid")")
	rm -f "$work/podman/cid"
}

podmanRun none curl -sS --cacert /etc/ca.pem "https://allowed.example:$port/"
expect "hello from allowed.example" "$work/said"
[ "$status" = 0 ] || fail "exit status $status"

podmanRun none curl -sS -v https://refused.example/
grep -E '^(< HTTP|< X-Eggrun|curl:)' "$work/said" >"$work/told" || true
expect "HTTP/1.1 403 eggrun: refused.example:443 not on the allowlist" "$work/told"
[ "$status" != 0 ] || fail "refused.example was reached"

step "A list that can't be enforced is no container at all"
podmanRun host true
expect "cannot enforce domains: host network requested; run with --network none" "$work/said"
[ "$status" != 0 ] || fail "it ran"
