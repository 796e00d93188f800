# The life of a container, by hand. Sourced by demo/run.

step "A bundle: a root file system made of busybox, and a config.json"
id=eggrun-demo-$$
ids+=("$id")
bundle=$work/life
mkdir -p "$bundle/rootfs/bin"
cp /bin/busybox "$bundle/rootfs/bin/"
show eggrun spec --bundle "$bundle"
editConfig "$bundle" --arg script 'trap "echo got TERM, bye; exit" TERM
echo "hello, I am process $$"
sleep 1000 & wait' '.process.terminal = false | .process.args = ["/bin/busybox", "sh", "-c", $script]'

# hasStatus ID STATUS tells whether that is the container's.
hasStatus() { [ "$(eggrun state "$1" | jq --raw-output .status)" = "$2" ]; }

# showStatus prints the container's state, once its status is as wanted.
showStatus() {
	waitFor hasStatus "$id" "$1"
	echo "\$ eggrun state $id"
	eggrun state "$id" | jq --compact-output '{id, pid, status}' | indent
}

step "create makes the container; its program waits"
echo "\$ eggrun create --bundle $bundle $id"
eggrun create --bundle "$bundle" "$id" >"$bundle/output" 2>&1 </dev/null || fail "$(cat "$bundle/output")"
showStatus created

step "start runs the program"
show eggrun start "$id"
waitFor grep --quiet hello "$bundle/output"
showStatus running
show eggrun list

step "kill sends it a signal"
show eggrun kill "$id" TERM
showStatus stopped
echo "What the program wrote:"
expect "got TERM, bye" "$bundle/output"

step "delete removes all of it"
show eggrun delete "$id"
echo "\$ eggrun state $id"
! eggrun state "$id" >"$bundle/output" 2>&1 || fail "$id is still there"
expect "container does not exist" "$bundle/output"
