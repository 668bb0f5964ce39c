#!/bin/bash
# usage: tests/fresh.sh [--demo-only] [debian12] [debian13]
# The README's two commands, for the commit that is checked out, on newly bootstrapped Debian machines that have nothing but what the
# README names: `make demo` without any container engine and with docker's client but no daemon, after it the tutorial
# (tests/newcomer.sh), then `make test`.
# A machine is a podman container of its own, inside which the simulated hosts' podman is installed and runs. Root; Debian's mirror, the
# CA certificates and the proxies are those of this machine. A cold `make test` takes about an hour on two cores, a demo three to five minutes.
set -euo pipefail
cd "$(dirname "$0")/.."

commands=('make demo' tests/newcomer.sh 'make test')
if [ "${1:-}" = --demo-only ]; then
  commands=('make demo' tests/newcomer.sh)
  shift
fi
[ $# -gt 0 ] || set -- debian12 debian13
declare -A SUITES=([debian12]=bookworm [debian13]=trixie)
for distribution in "$@"; do
  if [ -z "${SUITES[$distribution]:-}" ]; then
    echo "tests/fresh.sh: no distribution is called \"$distribution\"; allowed: ${!SUITES[*]}" >&2
    exit 2
  fi
done

BIN=${BIN:-.venv/bin}
"$BIN/python" -m gpuprov.simulate setup
bare=$(grep -o 'apt-get install git make [a-z0-9 -]*' README.md | head -1) # what the README says a bare machine needs
read -r debian security < <("$BIN/python" -c 'from gpuprov.simulate import sources; m = sources.read(); print(m.debian, m.security)')
work=$(mktemp -d)
machine=gpuprov-fresh-$$
network=gpuprov-fresh-$$ # the machine has a network of its own: inside, podman's default network is free
runtime=()
[ ! -x /usr/sbin/runc ] || runtime=(--runtime runc)

end() {
  code=$?
  trap - EXIT
  podman rm --force --volumes --time 0 "$machine" > /dev/null 2>&1 || true
  podman network rm --force "$network" > /dev/null 2>&1 || true
  rm -rf "$work"
  exit "$code"
}
trap end EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

bootstrap() { # DISTRIBUTION: a minimal system, with this machine's own CA certificates
  local suite=${SUITES[$1]} certificates=/usr/local/share/ca-certificates hooks=()
  if [ -n "$(ls -A $certificates 2> /dev/null)" ]; then
    hooks=(--customize-hook="copy-in $certificates /usr/local/share" --customize-hook='chroot "$1" update-ca-certificates > /dev/null 2>&1')
  fi
  mmdebstrap --quiet --mode=root --variant=minbase --format=tar --include=systemd-sysv,ca-certificates "${hooks[@]}" "$suite" \
    "$work/$1.tar" "deb $debian $suite main" "deb $debian $suite-updates main" "deb $security $suite-security main"
  podman import --quiet "$work/$1.tar" "localhost/gpuprov-fresh-$1" > /dev/null
  rm "$work/$1.tar"
}

inside() { podman exec "${passed[@]}" "$machine" bash -euc "$1"; }

start() { # DISTRIBUTION ENGINE: a new machine with a clone of the project
  podman rm --force --volumes --time 0 "$machine" > /dev/null 2>&1 || true
  podman "${runtime[@]}" run --detach --quiet --name "$machine" --network "$network" --privileged --volume /var/lib/containers \
    --ulimit nofile=20000:20000 --ulimit nproc=10000:10000 "localhost/gpuprov-fresh-$1" sleep infinity > /dev/null
  podman cp "$work/gpuprov.bundle" "$machine:/root/gpuprov.bundle"
  inside "apt-get -qq update; $bare -qq -y > /dev/null; git clone --quiet /root/gpuprov.bundle /root/gpuprov 2> /dev/null"
  if [ "$2" = client ]; then
    inside 'cd /tmp; apt-get -qq download docker-cli 2> /dev/null || apt-get -qq download docker.io; dpkg-deb -x docker*.deb docker
      install docker/usr/bin/docker /usr/local/bin/; ! docker info > /dev/null 2>&1'
  fi
  inside '! command -v podman'
}

passed=(--env DEBIAN_FRONTEND=noninteractive --env PODMAN_IGNORE_CGROUPSV1_WARNING=1 --workdir /root)
for variable in PIP_CERT PIP_INDEX_URL PIP_EXTRA_INDEX_URL PIP_DEFAULT_TIMEOUT SSL_CERT_FILE GOPROXY GOSUMDB GONOSUMDB \
  http_proxy https_proxy no_proxy; do
  [ -z "${!variable:-}" ] || passed+=(--env "$variable")
done

git bundle create --quiet "$work/gpuprov.bundle" HEAD
podman network create "$network" > /dev/null
failed=0
for distribution in "$@"; do
  bootstrap "$distribution"
  for engine in none client; do
    start "$distribution" "$engine"
    for command in "${commands[@]}"; do
      [ "$command $engine" != "make test none" ] || continue
      SECONDS=0
      echo "--- $distribution, engine: $engine, $command"
      if inside "cd gpuprov && $command" > "$work/log" 2>&1; then
        echo "passed: $distribution, engine: $engine, $command, $SECONDS s"
        grep -E '^[0-9]+ passed|^--- [0-9]+ s|^a green verify|verify (is green|found nothing wrong)' "$work/log" | tail -12
      else
        tail -40 "$work/log"
        echo "FAILED: $distribution, engine: $engine, $command, $SECONDS s"
        failed=1
      fi
    done
  done
done
exit "$failed"
