#!/bin/sh
# What a private runtime of either kind has: a bridge that it claims, a network on it, mounts below
# its folder.
#
# When: scripts/containerd and scripts/builtin read it. They set dir (the folder), net (the number
# of the bridge, or empty), cni_bin and log, and have a function `fail`.
#
# shellcheck disable=SC2154
set -eu

# `ip link add` fails where the name exists: the kernel is the lock between parallel starts.
claim_bridge() {
    owned=$(cat "$dir/net" 2>/dev/null || true)
    if [ -n "$owned" ] && [ "$(owner "$owned")" = "$dir" ]; then
        [ -z "$net" ] || [ "$net" = "$owned" ] ||
            fail "$dir holds net $owned, got --net $net: stop it first"
        return
    fi
    if [ -n "$net" ]; then
        try_claim "$net" || fail "bridge edged$net is taken by $(owner "$net"): stop that, or \
choose another --net, or, if that folder is gone, ip link delete edged$net"
        return
    fi
    n=1
    while [ "$n" -le 200 ]; do
        if try_claim "$n"; then return; fi
        n=$((n + 1))
    done
    fail "every bridge from edged1 to edged200 is taken: see ip link show type bridge"
}

try_claim() {
    ip link add "edged$1" type bridge 2>"$dir/ip.log" || {
        grep -q 'File exists' "$dir/ip.log" || fail "no bridge: $(cat "$dir/ip.log")"
        return 1
    }
    ip link set "edged$1" alias "$dir" && echo "$1" >"$dir/net"
}

# The folder that claimed the bridge of a net.
owner() {
    cat "/sys/class/net/edged$1/ifalias" 2>/dev/null || true
}

# The same words attach a pod and, where a pod was left, detach it.
bridge_plugin() {
    cat <<JSON
"type": "bridge", "bridge": "edged$net", "isGateway": true, "ipMasq": true, "hairpinMode": true,
      "ipam": { "type": "host-local", "dataDir": "$dir/ipam",
        "ranges": [[{ "subnet": "10.88.$net.0/24" }]], "routes": [{ "dst": "0.0.0.0/0" }] }
JSON
}

# detach CONFIG PLUGIN
detach() {
    echo "{ \"cniVersion\": \"0.4.0\", \"name\": \"edged$net\", $1 }" |
        CNI_COMMAND=DEL CNI_CONTAINERID=$id CNI_NETNS=$netns CNI_IFNAME=eth0 CNI_PATH=$cni_bin \
            "$cni_bin/$2" >>"$log" 2>&1 || true
}

# The deepest first. A path with a space is written \040 there; such folders are refused above.
end_mounts() {
    cut -d ' ' -f 2 /proc/self/mounts | grep "^$dir/" | sort --reverse |
        while read -r path; do
            umount --lazy "$path"
        done
}
