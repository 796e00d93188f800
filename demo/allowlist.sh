# A container that reaches what is on its list and nothing else. Sourced by
# demo/run.

step "A server to reach: https://allowed.example, on this machine"
mkdir "$work/server"
bin/demo-server allowed.example "$work/server" &
server=$!
waitFor test -e "$work/server/port"
port=$(cat "$work/server/port")
# The name is known in this mount namespace only.
{
	cat /etc/hosts
	echo "127.0.0.1 allowed.example"
} >"$work/hosts"
mount --bind "$work/hosts" /etc/hosts
echo "allowed.example is 127.0.0.1, the server is on port $port"

step "A bundle with curl in it, and an allowlist in its config.json"
id=eggrun-demo-$$-wall
ids+=("$id")
bundle=$work/wall
mkdir -p "$bundle/rootfs/bin" "$bundle/rootfs/etc"
cp /bin/busybox "$bundle/rootfs/bin/"
ln -s busybox "$bundle/rootfs/bin/sh"
cp "$work/server/ca.pem" "$bundle/rootfs/etc/"
curl=$(command -v curl)
cp "$curl" "$bundle/rootfs/bin/curl"
ldd "$curl" | grep -o '/[^ ]*' | xargs -I {} cp --dereference --parents {} "$bundle/rootfs/"
# A name that leads to a loopback or private address is refused, unless the list
# has the address too.
domains="allowed.example:$port 127.0.0.1:$port"
eggrun spec --bundle "$bundle"
editConfig "$bundle" --arg domains "$domains" '.process.terminal = false | .annotations = {"eggrun.domains": $domains}'
jq .annotations "$bundle/config.json" | indent

# inWall runs a command in a container with the list; what it says goes to
# $work/said.
inWall() {
	echo "\$ eggrun run $id   # $*"
	editConfig "$bundle" '.process.args = $ARGS.positional' --args -- "$@"
	status=0
	eggrun run --bundle "$bundle" "$id" >"$work/said" 2>&1 </dev/null || status=$?
}

step "The allowed name is reached"
inWall curl -sS --cacert /etc/ca.pem "https://allowed.example:$port/"
expect "hello from allowed.example" "$work/said"
[ "$status" = 0 ] || fail "exit status $status"

step "Another name is refused, and the client is told why"
inWall curl -sS -v https://refused.example/
grep -E '^(< HTTP|< X-Eggrun|curl:)' "$work/said" >"$work/told" || true
expect "HTTP/1.1 403 eggrun: refused.example:443 not on the allowlist" "$work/told"
[ "$status" != 0 ] || fail "refused.example was reached"

step "Ignoring the proxy does not help: there is no other way out"
inWall curl -sS --noproxy '*' --max-time 10 https://192.0.2.1/
expect "curl: (7)" "$work/said"
[ "$status" = 7 ] || fail "exit status $status"
inWall busybox ip address
expect "lo:" "$work/said"

step "What was asked for is in the audit log, also after delete"
echo "\$ eggrun egress log --json $id"
eggrun egress log --json "$id" >"$work/log"
indent <"$work/log"
for decision in '"allowed.example",.*"decision":"allow"' '"refused.example",.*"decision":"deny"'; do
	grep --quiet "$decision" "$work/log" || fail "no line with $decision"
done
