#!/usr/bin/env bash
# compose.sh: checks what docs/docker.md says, from the images to a clean machine. The script builds the images twice,
# starts docker-compose.yaml with its own project name and ports, waits until the objects are collected, and checks the
# containers and what remains after them. If no dockerd runs, the script starts one until it ends, for which it needs
# root.
set -euo pipefail
cd "$(dirname "$0")/.."
# Debian installs dockerd outside the PATH of most users.
export PATH=$PATH:/usr/sbin:/sbin

# The seconds until all services are healthy, and until a thousand objects are collected. A busy machine needs more.
HEALTHY_WITHIN=${HEALTHY_WITHIN:-180}
COLLECTED_WITHIN=${COLLECTED_WITHIN:-360}

project=ownergraph-test-$$
export COMPOSE_PROJECT_NAME=$project OWNERGRAPH_TAG=test-$$
# With 0, Docker selects a free port.
export OWNERGRAPH_APISERVER_PORT=0 OWNERGRAPH_GRAPH_PORT=0 OWNERGRAPH_PROMETHEUS_PORT=0
work=$(mktemp -d)
dockerd=

fail() { echo "tests/compose.sh: $*" >&2; exit 1; }

finish() {
    local code=$?
    set +e
    if docker info >/dev/null 2>&1; then
        if [ $code -ne 0 ]; then docker-compose ps; docker-compose logs --tail 40 --no-color; fi
        docker-compose down --volumes --remove-orphans --timeout 5 >/dev/null 2>&1
        docker images --filter "reference=localhost/ownergraph/*:$OWNERGRAPH_TAG" --format '{{.Repository}}:{{.Tag}}' | xargs -r docker rmi >/dev/null
    fi
    if [ -n "$dockerd" ]; then kill "$dockerd"; wait "$dockerd"; fi
    rm -rf "$work"
    exit $code
} 2>/dev/null
trap finish EXIT

# Starts a dockerd if none answers. It ends with this script.
start_dockerd() {
    docker info >/dev/null 2>&1 && return
    command -v dockerd >/dev/null || fail "no dockerd runs and none is installed; apt-get install docker.io docker-compose iptables"
    [ "$(id -u)" = 0 ] || fail "no dockerd answers $(id -un), and only root may start one; run this script as root, or start dockerd"
    dockerd >"$work/dockerd.log" 2>&1 &
    dockerd=$!
    for _ in $(seq 120); do
        docker info >/dev/null 2>&1 && return
        kill -0 "$dockerd" 2>/dev/null || break
        sleep 0.5
    done
    fail "dockerd cannot run here: $(grep -E 'level=(error|fatal)|failed' "$work/dockerd.log" | tail -n 3)"
}

step() { printf -- '-- %s (%ss)\n' "$*" "$SECONDS"; }

# within SECONDS CONDITION COMMAND…: waits until the command succeeds. Its error names the condition.
within() {
    local limit=$1 what=$2 end=$((SECONDS + $1))
    shift 2
    until "$@"; do
        [ $SECONDS -lt $end ] || fail "after $limit s this is still not so: $what"
        sleep 0.2
    done
}

containers() { docker ps --all --quiet --filter "label=com.docker.compose.project=$project"; }

of() { docker-compose ps --all --quiet "$1"; }

for tool in docker docker-compose openssl curl; do
    command -v "$tool" >/dev/null || fail "$tool is missing; apt-get install docker.io docker-compose iptables openssl curl"
done
start_dockerd

step 'the images, and the same again'
deploy/images.sh | tee "$work/first"
# The second build has another umask, and its files have other times. Neither may change an image.
(umask 077 && deploy/images.sh) >"$work/second"
diff "$work/first" "$work/second" || fail 'the same input gave different images'
programs=${CARGO_TARGET_DIR:-target}/$(rustc -vV | sed -n 's/^host: //p')/dist
for program in graph-service executor-service ownergraph healthcheck; do
    ! grep -qaF -e "$PWD" -e "${CARGO_HOME:-$HOME/.cargo}/" "$programs/$program" || fail "$program contains a path of this machine"
done
for name in graph-service executor-service ownergraph; do
    ! grep -qF -e "$PWD" -e "$HOME" "${CARGO_TARGET_DIR:-target}/images/$name.cdx.json" || fail "the list of $name contains a path of this machine"
    grep -q '"bomFormat": *"CycloneDX"' "${CARGO_TARGET_DIR:-target}/images/$name.cdx.json" || fail "$name has no list of its inputs"
    grep -q '"pkg:cargo/tokio@' "${CARGO_TARGET_DIR:-target}/images/$name.cdx.json" || fail "the list of $name lacks its crates"
done

page=$(grep -o '/assets/[^"]*\.js' console/dist/index.html | head -n 1)
grep -qaF "$page" "$programs/ownergraph" || fail "ownergraph does not contain the console: $page of console/dist is missing"
grep -q '"pkg:npm/svelte@' "${CARGO_TARGET_DIR:-target}/images/ownergraph.cdx.json" || fail 'the packages of the page are not in the list of ownergraph'

step 'the files, as other programs read them'
(cd tests/deploy && go run . compose ../../docker-compose.yaml >"$work/services" && go run . dockerfile ../../deploy/Dockerfile >"$work/targets")
docker-compose config --services | sort | diff - <(sort "$work/services") || fail 'Compose v1 and v2 see different services'
for name in graph-service executor-service ownergraph; do
    grep -qx "$name" "$work/targets" || fail "deploy/Dockerfile has no target $name"
done

step 'up'
began=$SECONDS
docker-compose up --detach >"$work/up.log" 2>&1 || { cat "$work/up.log"; fail 'docker-compose up'; }
all_healthy() {
    local service state
    for service in $(grep -vxE 'setup|load' "$work/services"); do
        state=$(docker inspect --format '{{.State.Health.Status}}' "$(of "$service")") || return 1
        [ "$state" = healthy ] || return 1
    done
}
within "$HEALTHY_WITHIN" 'everything is healthy' all_healthy
echo "everything healthy after $((SECONDS - began)) s"

step 'collected'
load=$(of load)
ended() { [ "$(docker inspect --format '{{.State.Status}}' "$load")" = exited ]; }
within "$COLLECTED_WITHIN" 'a thousand objects are collected' ended
docker logs "$load"
[ "$(docker inspect --format '{{.State.ExitCode}}' "$load")" = 0 ] || fail 'the load ended with an error'
docker logs "$load" 2>&1 | grep -q '^all 1000 objects were collected' || fail 'the load does not say that a thousand objects were collected'

step 'names, in the image'
inside() { docker-compose exec -T executor-service-1 /healthcheck "$@" --tls-ca /run/ownergraph/ca.crt; }
for name in graph-service graph-service-1 graph-service-2; do
    inside "https://$name:7451/readyz" || fail "executor-service-1 does not find $name"
done
# The check of names must be able to fail.
! inside https://nobody-is-called-so:7451/readyz 2>"$work/unknown" || fail 'an unknown name was resolved'
grep -q 'failed to lookup address' "$work/unknown" || fail "the error does not say that the name is unknown: $(cat "$work/unknown")"

step 'what it says of itself, over TLS alone'
docker-compose run --rm --no-deps -T load status 2>/dev/null
! docker-compose exec -T executor-service-1 /healthcheck http://graph-service-1:7451/readyz 2>/dev/null || fail 'the graph service answers in plaintext'
ask() { "$programs/ownergraph" "$@" --server "$(docker-compose port graph-service-1 7450)" --tls-ca target/compose/admin/ca.crt; }
ask status --tls-cert target/compose/admin/tls.crt --tls-key target/compose/admin/tls.key >/dev/null || fail 'the administrator gets no answer'
! ask status 2>"$work/nobody" || fail 'the graph service answers an unauthenticated caller'
grep -q "a bearer token for the audience" "$work/nobody" || fail "an unauthenticated caller is refused for another reason: $(cat "$work/nobody")"
! ask status --tls-cert target/compose/nats/tls.crt --tls-key target/compose/nats/tls.key 2>"$work/stranger" || fail 'any certificate is accepted'
grep -qE "nats.* status" "$work/stranger" || fail "a caller without rights is refused for another reason: $(cat "$work/stranger")"
! inside https://graph-service-1:7451/metrics 2>"$work/metrics" || fail 'a caller without rights gets metrics'
grep -qE 'answers 40[13]' "$work/metrics" || fail "the request for metrics is not refused with 401 or 403: $(cat "$work/metrics")"

step 'what Prometheus sees'
prometheus=$(docker-compose port prometheus 9090)
four_up() { curl -sf --get "http://$prometheus/api/v1/query" --data-urlencode 'query=count(up == 1)' | grep -q '"4"\]'; }
within 60 'both graph services and both executors are scraped' four_up

step 'what the containers may do'
for container in $(containers); do
    docker inspect --format '{{.Name}} {{.Config.User}} {{.HostConfig.ReadonlyRootfs}} {{.HostConfig.Privileged}} {{.HostConfig.CapDrop}}' "$container" |
        grep -q ' 65532:65532 true false \[ALL\]$' || fail "$(docker inspect --format '{{.Name}}' "$container") has more rights than it needs"
    [ -z "$(docker inspect --format '{{range .Mounts}}{{if eq .Type "volume"}}{{.Name}}{{end}}{{end}}' "$container")" ] || fail "$(docker inspect --format '{{.Name}}' "$container") has a volume"
    docker inspect --format '{{range $port, $at := .NetworkSettings.Ports}}{{range $at}}{{.HostIp}}{{"\n"}}{{end}}{{end}}' "$container"
done | sort -u >"$work/addresses"
diff "$work/addresses" <(printf '%s\n' '' 127.0.0.1) || fail 'a port is published beyond loopback'

step 'certificates that must not be removed'
mkdir "$work/mine"
touch "$work/mine/precious"
! deploy/compose/credentials.sh "$work/mine" 2>"$work/refused" || fail 'certificates were written into a foreign directory'
[ -e "$work/mine/precious" ] || fail 'a foreign file was removed'
grep -q 'did not make' "$work/refused" || fail "credentials.sh refuses for another reason: $(cat "$work/refused")"
cp target/compose/made-by "$work/made-by"
echo 'another script' >target/compose/made-by
! deploy/compose/credentials.sh target/compose 2>"$work/refused" || fail 'certificates were replaced while containers use them'
grep -q 'run docker-compose down first' "$work/refused" || fail "credentials.sh refuses for another reason: $(cat "$work/refused")"
cp "$work/made-by" target/compose/made-by

step 'down'
docker-compose down >"$work/down.log" 2>&1 || { cat "$work/down.log"; fail 'docker-compose down'; }
for left in "container ls --all" "network ls" "volume ls"; do
    [ -z "$(docker $left --quiet --filter "label=com.docker.compose.project=$project")" ] || fail "docker $left still lists objects of this project"
done
step 'nothing is left'
