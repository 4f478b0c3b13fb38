#!/usr/bin/env bash
# credentials.sh DIRECTORY: creates the identities of docker-compose.yaml: an authority, and for each service a folder
# with its certificate (tls.crt, tls.key), the authorities that it trusts (ca.crt), and a kubeconfig if it needs one.
# The files are valid for a month, and are replaced when they are about to expire.
#
# The folders are mounted into containers that run as another user, so all users may read their files. DIRECTORY itself
# is closed to other users.
set -euo pipefail
folders=(etcd kube-apiserver nats prometheus admin graph-service-1 graph-service-2 executor-service-1 executor-service-2)
script=$(cat "$0" | sha256sum)

fail() { echo "deploy/compose/credentials.sh: $*" >&2; exit 1; }

# Lists running containers that mount one of the folders. If no Docker daemon answers, no container runs.
users() {
    local folder filters=()
    for folder in "${folders[@]}"; do filters+=(--filter "volume=$PWD/$folder"); done
    if docker info >/dev/null 2>&1; then docker ps --quiet "${filters[@]}"; fi
}

mkdir -p "$1"
cd -P "$1"
if [ "$(cat made-by 2>/dev/null)" = "$script" ] && openssl x509 -in ca.crt -noout -checkend 86400 >/dev/null 2>&1; then exit 0; fi
if [ -e made-by ]; then
    # Refuses, because these containers would see empty folders afterwards.
    using=$(users) || fail "$PWD must be replaced, and docker ps does not say which containers use it; start dockerd"
    [ -z "$using" ] || fail "$PWD must be replaced, and running containers use it; run docker-compose down first"
elif [ -n "$(ls -A)" ]; then
    fail "$PWD contains files that this script did not make; name another directory, or remove them"
fi
# This marker comes first, so that an unfinished run is recognized.
: >made-by
chmod 700 .
rm -rf -- "${folders[@]}" ca.crt ca.key ca.srl

key() { openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out "$1"; }

# identity NAME GROUP OTHER-NAME…: creates a certificate for a server with these names, and for a client with user NAME
# and group GROUP.
identity() {
    local name=$1 group=$2 names="DNS:$1,DNS:localhost,IP:127.0.0.1" other said
    shift 2
    for other in "$@"; do names+=",DNS:$other"; done
    mkdir "$name"
    key "$name/tls.key"
    # The tool reports success on stderr, too.
    said=$(openssl req -new -key "$name/tls.key" -subj "/O=$group/CN=$name" |
        openssl x509 -req -CA ca.crt -CAkey ca.key -CAcreateserial -days 31 -sha256 -out "$name/tls.crt" 2>&1 -extfile <(
            printf 'basicConstraints=CA:FALSE\nkeyUsage=digitalSignature\nextendedKeyUsage=serverAuth,clientAuth\nsubjectAltName=%s\n' "$names"
        )) || fail "the certificate of $name: $said"
    cp ca.crt "$name/"
}

# kubeconfig NAME: writes a kubeconfig for user NAME, with the certificate in the same folder.
kubeconfig() {
    cat >"$1/kubeconfig" <<END
apiVersion: v1
kind: Config
current-context: compose
clusters:
- {name: compose, cluster: {server: "https://kube-apiserver:6443", certificate-authority: ca.crt}}
users:
- {name: $1, user: {client-certificate: tls.crt, client-key: tls.key}}
contexts:
- {name: compose, context: {cluster: compose, user: $1}}
END
}

key ca.key
openssl req -x509 -new -key ca.key -subj /CN=ownergraph-compose -days 31 -sha256 -out ca.crt -addext keyUsage=keyCertSign,cRLSign
identity etcd none
identity kube-apiserver none
key kube-apiserver/service-account.key
openssl pkey -in kube-apiserver/service-account.key -pubout -out kube-apiserver/service-account.pub
identity nats none
identity prometheus ownergraph:readers
identity admin system:masters
for number in 1 2; do
    identity "graph-service-$number" ownergraph:graph-services graph-service
    identity "executor-service-$number" ownergraph:executors
    kubeconfig "graph-service-$number"
    kubeconfig "executor-service-$number"
done
kubeconfig admin
# The CA key is deleted, so no identity can be added afterwards.
rm ca.key ca.srl
chmod -R a+rX -- "${folders[@]}"
echo "$script" >made-by
