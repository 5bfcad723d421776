# shellcheck shell=sh disable=SC2154
# What `scripts/qemu --jobs` does beside the guest: a Kubernetes API server, edgecontroller with
# the rights of config/edgecontroller.yaml, a registry, and jobs for the node by kubectl. All of it
# runs in a network namespace of its own; the guest reaches its loopback as 10.0.2.2.

# need_programs: what is not of this repository.
need_programs() {
    lacks=
    case $cloud in
    edgecontroller) others= ;;
    cloudcore) others='cloudcore controllermanager' ;;
    cloudcore-v1alpha1) others=cloudcore ;;
    *) fail "CLOUD is «$cloud», expected edgecontroller, cloudcore or cloudcore-v1alpha1" ;;
    esac
    # shellcheck disable=SC2086  # several
    for name in etcd kube-apiserver kubectl $others; do
        [ -x "$kube/$name" ] || lacks="$lacks $name"
    done
    [ -z "$lacks" ] ||
        fail "KUBE is «$kube»: expected a folder with Kubernetes' programs; it lacks:$lacks"
    [ "$cloud" = edgecontroller ] || [ -d "${CRDS:-}" ] ||
        fail "CRDS is «${CRDS:-}»: expected the folder build/crds of KubeEdge's source"
    for tool in openssl unshare nsenter ip busybox; do
        command -v "$tool" >/dev/null || fail "$tool is missing"
    done
}

# background NAME COMMAND...: in the namespace, until the end of the script.
background() {
    name=$1
    shift
    # shellcheck disable=SC2086  # a command and its options
    $inside "$@" >"$work/$name.log" 2>&1 </dev/null &
    children="$children $!"
}

# wait_for SECONDS WHAT COMMAND...
wait_for() {
    left=$1 what=$2
    shift 2
    until "$@" >/dev/null 2>&1; do
        left=$((left - 1))
        [ "$left" -gt 0 ] || give_up "waited for: $what"
        sleep 1
    done
    echo "jobs: $what"
}

# give_up WHY: with what is known.
give_up() {
    tail -n 40 "$work/console" "$work"/*c*o*r*.log >&2 || true
    k get nodes,nodeupgradejobs,imageprepulljobs --output yaml >&2 || true
    fail "$*"
}

k() {
    # shellcheck disable=SC2086  # a command and its options
    $inside "$kube/kubectl" --kubeconfig "$work/admin.kubeconfig" --request-timeout 20s "$@"
}

# certificate NAME SUBJECT EXTENSIONS: by the cluster's CA.
certificate() {
    openssl req -newkey rsa:2048 -nodes -keyout "$work/$1.key" -subj "$2" -out "$work/$1.csr"
    echo "$3" >"$work/$1.ext"
    openssl x509 -req -in "$work/$1.csr" -CA "$work/ca.crt" -CAkey "$work/ca.key" \
        -CAcreateserial -days 2 -out "$work/$1.crt" -extfile "$work/$1.ext"
}

# kubeconfig NAME USER: the user as YAML.
kubeconfig() {
    cat >"$work/$1.kubeconfig" <<YAML
apiVersion: v1
kind: Config
clusters:
  - name: here
    cluster: { server: "https://127.0.0.1:6443", certificate-authority: "$work/ca.crt" }
users: [{ name: here, user: { $2 } }]
contexts: [{ name: here, context: { cluster: here, user: here } }]
current-context: here
YAML
}

start_api_server() {
    {
        openssl req -x509 -newkey rsa:2048 -nodes -keyout "$work/ca.key" -subj /CN=ca -days 2 \
            -out "$work/ca.crt" -addext keyUsage=critical,keyCertSign,cRLSign,digitalSignature
        certificate server /CN=kube-apiserver \
            'subjectAltName=IP:127.0.0.1,IP:10.96.0.1,DNS:localhost,DNS:kubernetes.default.svc'
        certificate admin /O=system:masters/CN=admin extendedKeyUsage=clientAuth
        openssl genrsa -out "$work/tokens.key" 2048
        openssl rsa -in "$work/tokens.key" -pubout -out "$work/tokens.pub"
    } 2>"$work/openssl.log" || give_up "openssl: $(cat "$work/openssl.log")"
    kubeconfig admin "client-certificate: $work/admin.crt, client-key: $work/admin.key"
    mkdir -m 700 "$work/etcd"
    # One that was made out of etcd's packages has other flags than its own program.
    if "$kube/etcd" --help 2>&1 | grep --quiet listen-client-urls; then
        background etcd "$kube/etcd" --data-dir "$work/etcd" \
            --listen-client-urls http://127.0.0.1:2379 \
            --advertise-client-urls http://127.0.0.1:2379 --listen-peer-urls http://127.0.0.1:2380
    else
        background etcd "$kube/etcd" -data-dir "$work/etcd"
    fi
    background kube-apiserver "$kube/kube-apiserver" --etcd-servers=http://127.0.0.1:2379 \
        --bind-address=127.0.0.1 --advertise-address=192.0.2.1 --secure-port=6443 \
        --service-cluster-ip-range=10.96.0.0/16 --authorization-mode=Node,RBAC \
        --tls-cert-file="$work/server.crt" --tls-private-key-file="$work/server.key" \
        --client-ca-file="$work/ca.crt" --cert-dir="$work" \
        --service-account-issuer=https://kubernetes.default.svc.cluster.local \
        --service-account-key-file="$work/tokens.pub" \
        --service-account-signing-key-file="$work/tokens.key"
    wait_for 180 'the API server is ready' k get --raw /readyz
    wait_for 60 'the namespace default is there' k get namespace default
}

start_edgecontroller() {
    k apply --filename "$top/config/edgecontroller.yaml" --filename "$top/config/node-jobs.yaml" \
        >"$work/apply.log" 2>&1 || give_up "$(cat "$work/apply.log")"
    token=$(k create token edgecontroller --namespace kubeedge --duration 24h)
    kubeconfig edgecontroller "token: $token"
    version_of_jobs=v1alpha2
    background edgecontroller "$edgecontroller" run --kubeconfig "$work/edgecontroller.kubeconfig" \
        --data "$work/data" --advertise 10.0.2.2 --listen-hub 127.0.0.1:10000 \
        --listen-https 127.0.0.1:10002 --listen-tunnel 127.0.0.1:10004 --listen-stream off
}

start_cloudcore() {
    for folder in devices reliablesyncs router apps operations policy; do
        k apply --filename "$CRDS/$folder" >>"$work/apply.log" 2>&1 ||
            give_up "$(cat "$work/apply.log")"
    done
    k create namespace kubeedge >>"$work/apply.log"
    gates='' version_of_jobs=v1alpha2
    if [ "$cloud" = cloudcore-v1alpha1 ]; then
        gates='featureGates: { disableNodeTaskV1alpha2: true }' version_of_jobs=v1alpha1
    fi
    cat >"$work/cloudcore.yaml" <<YAML
apiVersion: cloudcore.config.kubeedge.io/v1alpha1
kind: CloudCore
$gates
kubeAPIConfig: { kubeConfig: "$work/admin.kubeconfig" }
modules:
  cloudHub:
    advertiseAddress: [10.0.2.2]
    https: { address: 127.0.0.1, enable: true, port: 10002 }
    websocket: { address: 127.0.0.1, enable: true, port: 10000 }
    unixsocket: { address: "unix://$work/cloudcore.sock", enable: true }
    tlsCAFile: $work/cloud/rootCA.crt
    tlsCAKeyFile: $work/cloud/rootCA.key
    tlsCertFile: $work/cloud/server.crt
    tlsPrivateKeyFile: $work/cloud/server.key
  iptablesManager: { enable: false }
  taskManager: { enable: true }
YAML
    background cloudcore "$kube/cloudcore" --config "$work/cloudcore.yaml"
    [ "$cloud" = cloudcore-v1alpha1 ] ||
        background controllermanager env KUBECONFIG="$work/admin.kubeconfig" \
            "$kube/controllermanager"
}

node_token() {
    token=$(k get secret tokensecret --namespace kubeedge --output 'jsonpath={.data.tokendata}')
    [ -n "$token" ] && echo "$token" | base64 -d
}

start_cloud() {
    unshare --net sleep 100000 &
    holder=$!
    children=$holder
    inside="nsenter --target $holder --net --"
    # Until it is in the namespace, nsenter would find this one.
    until [ "$(readlink "/proc/$holder/ns/net")" != "$(readlink /proc/$$/ns/net)" ]; do
        sleep 0.1
    done
    $inside ip link set lo up
    # The API server advertises no address of loopback, and CloudCore wants a default route.
    $inside ip link add outside type veth peer name far
    $inside ip addr add 192.0.2.1/24 dev outside
    $inside ip link set outside up
    $inside ip link set far up
    $inside ip route add default via 192.0.2.2
    start_api_server
    if [ "$cloud" = edgecontroller ]; then start_edgecontroller; else start_cloudcore; fi
    wait_for 60 "$cloud has made a token" node_token
    background registry busybox httpd -f -p 127.0.0.1:5000 -h "$work/registry"
}

# ---- images ----

# blob FILE: into the registry; prints its digest.
blob() {
    digest=sha256:$(sha256sum "$1" | cut -d ' ' -f 1)
    cp "$1" "$work/registry/v2/blobs/$digest"
    echo "$digest"
}

# image NAME TAG FOLDER: what is in the folder, as an image of one layer; prints its digest.
image() {
    into=$work/registry/v2/$1
    mkdir -p "$into/manifests"
    ln -sfn ../../blobs "$into/blobs"
    tar --create --file="$work/layer" --directory="$3" --owner=0 --group=0 .
    layer=$(blob "$work/layer")
    architecture=$debian variant=
    if [ "$debian" = armhf ]; then architecture=arm variant=v7; fi
    cat >"$work/image.json" <<JSON
{ "architecture": "$architecture", "variant": "$variant", "os": "linux", "config": {},
  "rootfs": { "type": "layers", "diff_ids": ["$layer"] } }
JSON
    config=$(blob "$work/image.json")
    of=application/vnd.oci.image
    cat >"$into/manifests/$2" <<JSON
{ "schemaVersion": 2, "mediaType": "$of.manifest.v1+json",
  "config": { "mediaType": "$of.config.v1+json", "digest": "$config",
    "size": $(stat --format=%s "$work/image.json") },
  "layers": [{ "mediaType": "$of.layer.v1.tar", "digest": "$layer",
    "size": $(stat --format=%s "$work/layer") }] }
JSON
    digest=sha256:$(sha256sum "$into/manifests/$2" | cut -d ' ' -f 1)
    cp "$into/manifests/$2" "$into/manifests/$digest"
    echo "$digest"
}

# edged_image NAME PROGRAM: signed by the release key; prints its digest.
edged_image() {
    mkdir "$work/$1"
    cp "$2" "$work/$1/edged"
    chmod 755 "$work/$1/edged"
    "$top/scripts/release" --sign "$work/release.key" "$work/$1/edged"
    image "edged/$1" "$next" "$work/$1"
}

make_images() {
    mkdir -p "$work/registry/v2/blobs" "$work/hello"
    "$top/scripts/release" --new-key "$work/release.key" >/dev/null
    version=$(sed -n '/^\[package\]/,/^\[/s/^version = "\(.*\)"$/\1/p' "$top/Cargo.toml")
    # Another program by its bytes and by the version that the node reports, and the same by what
    # it does. A text of the same length can be put in place of another.
    patched=$(echo "$version" | sed 's/[0-9]/9/g')
    next=v$patched
    sed "s/edged\.$version/edged.$patched/g" "$program" >"$work/holds.bin"
    ! cmp --silent "$program" "$work/holds.bin" || fail "$program does not name its version"
    holds=$(edged_image holds "$work/holds.bin")
    # It runs and answers, but takes no answer to the opening of a websocket (RFC 6455 section 1.3).
    sed 's/258EAFA5-E914/258EAFA5-E915/' "$work/holds.bin" >"$work/mute.bin"
    ! cmp --silent "$work/holds.bin" "$work/mute.bin" || fail "$program opens no websocket"
    edged_image mute "$work/mute.bin" >/dev/null
    cat >"$work/ends.c" <<'C'
#include <stdio.h>
#include <string.h>
int main(int count, char **words) {
    return count > 1 && !strcmp(words[1], "version") && puts("edged 9.9.9") >= 0 ? 0 : 1;
}
C
    "$top/scripts/cross" "$short" cc -static -Os -s -o "$work/ends.bin" "$work/ends.c"
    edged_image ends "$work/ends.bin" >/dev/null
    # What nobody signed.
    mkdir "$work/forged"
    cp "$work/holds/edged.sig" "$work/forged/"
    cp "$work/mute/edged" "$work/forged/"
    image edged/forged "$next" "$work/forged" >/dev/null
    echo hello >"$work/hello/hello"
    image demo/hello 1 "$work/hello" >/dev/null
}

# configure_guest: in the guest's root, which is the present folder.
configure_guest() {
    cp "$top/cross/guest/commands" etc/show
    mkdir -p etc/edged
    cp "$work/release.key.pub" etc/edged/release.pub
    cat >>etc/default/edged <<TEXT
EDGED_LOG=stderr
EDGED_LINK_S=60
TEXT
    cat >>etc/kubeedge/config/edgecore.yaml <<YAML
    builtinRuntime: { insecureRegistries: ["10.0.2.2:5000"] }
  edgeHub:
    enable: true
    websocket: { enable: true, server: "10.0.2.2:10000" }
    httpServer: https://10.0.2.2:10002
    token: $(node_token)
  taskManager:
    enable: true
    upgradeRepositories: ["10.0.2.2:5000/edged/ends", "10.0.2.2:5000/edged/mute",
      "10.0.2.2:5000/edged/forged", "10.0.2.2:5000/edged/holds"]
YAML
}

# ---- the jobs ----

# in_guest COMMAND: in the guest; its output goes to the console.
in_guest() {
    echo "$1" >&3
}

# job_status KIND NAME: on one line.
job_status() {
    k get "$1" "$2" --output 'jsonpath={.status}'
}

# ended KIND NAME: whether no more comes of it.
ended() {
    case $(k get "$1" "$2" --output 'jsonpath={.status.phase}{.status.state}') in
    Completed | Failure | Successful | Failed) ;;
    *) return 1 ;;
    esac
}

# says KIND NAME TEXT...: what its status has to say.
says() {
    kind=$1 name=$2
    shift 2
    said=$(job_status "$kind" "$name")
    for text in "$@"; do
        case $said in
        *"$text"*) ;;
        *) give_up "$kind/$name: got «$said», expected «$text»" ;;
        esac
    done
    echo "jobs: $kind/$name: $said"
}

# upgrade NAME IMAGE FIELDS: a NodeUpgradeJob.
upgrade() {
    k apply --filename - >/dev/null <<YAML
apiVersion: operations.kubeedge.io/$version_of_jobs
kind: NodeUpgradeJob
metadata: { name: $1 }
spec: { version: $next, image: "10.0.2.2:5000/edged/$2", nodeNames: [gw], timeoutSeconds: 900$3 }
YAML
    echo "jobs: nodeupgradejob/$1"
}

# prepull NAME IMAGE: an ImagePrePullJob, for the nodes of a label.
prepull() {
    k apply --filename - >/dev/null <<YAML
apiVersion: operations.kubeedge.io/$version_of_jobs
kind: ImagePrePullJob
metadata: { name: $1 }
spec:
  imagePrePullTemplate:
    images: ["10.0.2.2:5000/$2"]
    labelSelector: { matchLabels: { kubernetes.io/hostname: gw } }
    checkItems: [disk]
    timeoutSeconds: 300
YAML
    wait_for 300 "imageprepulljob/$1 has ended" ended imageprepulljob "$1"
}

runs_version() {
    runs=$(k get node gw --output 'jsonpath={.status.nodeInfo.kubeletVersion}')
    [ "${runs##*edged.}" = "$1" ]
}

waits_for_confirmation() {
    job_status nodeupgradejob "$1" | grep --quiet 'WaitingConfirmation'
}

on_console() {
    tail -n "+$seen" "$work/console" | grep --quiet -e "$1"
}

mark_console() {
    seen=$(($(wc -l <"$work/console") + 1))
}

is_ready() {
    [ "$(k get node gw --output 'jsonpath={.status.conditions[?(@.type=="Ready")].status}')" \
        = True ]
}

# left_by NAME IMAGE TEXT...: an upgrade that is left again, or not begun.
left_by() {
    upgrade "$1" "$2" ''
    wait_for 900 "nodeupgradejob/$1 has ended" ended nodeupgradejob "$1"
    name=$1
    shift 2
    says nodeupgradejob "$name" "$failed" "$@"
    wait_for 120 "the node runs $version" runs_version "$version"
}

# confirmed_with_a_cut NAME: an upgrade that holds, and waits for somebody at the node. The power is
# cut while it is tried.
confirmed_with_a_cut() {
    upgrade "$1" "holds@$holds" ', requireConfirmation: true'
    wait_for 300 'the upgrade waits to be confirmed' waits_for_confirmation "$1"
    sleep 20
    ! ended nodeupgradejob "$1" || give_up 'got an upgrade that nobody confirmed'
    runs_version "$version" || give_up 'got another version before it was confirmed'
    mark_console
    in_guest 'edged upgrade confirm'
    wait_for 200 'the trial begins' on_console 'its trial begins'
    sleep 15
    kill -KILL "$(cat "$work/pid")"
    wait "$guest" || true
    echo 'jobs: its power is cut'
    boot &
    guest=$!
}

# holds NAME: an upgrade that is kept.
holds() {
    wait_for 900 "nodeupgradejob/$1 has ended" ended nodeupgradejob "$1"
    says nodeupgradejob "$1" "$succeeded"
    wait_for 120 "the node runs $patched" runs_version "$patched"
}

run_jobs() {
    succeeded='"phase":"Completed"' failed='"phase":"Failure"'
    if [ "$cloud" = cloudcore-v1alpha1 ]; then
        succeeded='"state":"Successful"' failed='"state":"Failed"'
    fi
    mkfifo "$work/input"
    exec 3<>"$work/input"
    input=$work/input
    : >"$work/console"
    boot &
    guest=$!
    wait_for 400 'the node is ready' is_ready
    wait_for 60 "the node runs $version" runs_version "$version"

    prepull hello demo/hello:1
    says imageprepulljob hello "$succeeded" 10.0.2.2:5000/demo/hello:1
    prepull missing demo/missing:1
    says imageprepulljob missing "$failed" missing

    left_by ends ends 'did not hold'
    if [ "$cloud" = cloudcore-v1alpha1 ]; then
        # It knows no confirmation.
        upgrade holds holds ''
        holds holds
    else
        left_by mute mute 'has not reached its cloud' "back on v$version"
        left_by forged forged 'is not a signature of it'
        confirmed_with_a_cut confirmed
        holds confirmed
    fi
    mark_console
    in_guest 'edged-run slot; edged pods; edged status; poweroff -f'
    wait "$guest" || true
    on_console '/var/lib/edged/[ab]/edged' || give_up 'got another slot'
    echo 'jobs: PASSED'
}
