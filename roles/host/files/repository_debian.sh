# usage: repository_debian.sh try|fetch NAME
# try: with the texts $GPUPROV_SOURCE and $GPUPROV_KEY in a folder of their own; of the host nothing is read but apt's settings.
# fetch: the lists of /etc/apt/sources.list.d/gpuprov-NAME.sources alone; the others stay as they are.
set -e
t=30
update() {
  apt-get -qq -o "Acquire::http::Timeout=$t" -o "Acquire::https::Timeout=$t" -o Acquire::Retries=1 -o Acquire::Languages=none \
    -o APT::Update::Error-Mode=any -o Dir::Etc::sourceparts=- -o "Dir::Etc::sourcelist=$1" "$2" "$3" update < /dev/null
}
if [ "$1" = try ]; then
  d=$(mktemp -d)
  trap 'rm -rf "$d"' EXIT
  mkdir -p "$d/lists/partial"
  chmod 755 "$d"
  printf '%s' "$GPUPROV_KEY" > "$d/key.asc"
  printf '%s' "$GPUPROV_SOURCE" | sed "s#^Signed-By:.*#Signed-By: $d/key.asc#" > "$d/gpuprov.sources"
  chmod 644 "$d/key.asc" "$d/gpuprov.sources"
  update "$d/gpuprov.sources" -o "Dir::State::lists=$d/lists"
  exit
fi
until=$(($(date +%s) + ${GPUPROV_LOCK_TIMEOUT:-0}))
while :; do
  said=$(LC_ALL=C update "/etc/apt/sources.list.d/gpuprov-$2.sources" -o APT::Get::List-Cleanup=0 2>&1) && break
  case "$said" in *'Could not get lock'*) [ "$(date +%s)" -lt "$until" ] && sleep 2 && continue ;; esac
  printf '%s\n' "$said" >&2
  exit 1
done
# All sources together: what contradicts another would leave apt without any.
apt-get indextargets > /dev/null
