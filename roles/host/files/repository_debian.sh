# usage: repository_debian.sh NAME
# Asks for the index with the texts $GPUPROV_SOURCE and $GPUPROV_KEY in a folder of their own; of the host nothing is read but apt's
# settings.
set -e
t=30
d=$(mktemp -d)
trap 'rm -rf "$d"' EXIT
mkdir -p "$d/lists/partial"
chmod 755 "$d"
printf '%s' "$GPUPROV_KEY" > "$d/key.asc"
printf '%s' "$GPUPROV_SOURCE" | sed "s#^Signed-By:.*#Signed-By: $d/key.asc#" > "$d/gpuprov.sources"
chmod 644 "$d/key.asc" "$d/gpuprov.sources"
apt-get -qq -o "Acquire::http::Timeout=$t" -o "Acquire::https::Timeout=$t" -o Acquire::Retries=1 -o Acquire::Languages=none \
  -o APT::Update::Error-Mode=any -o Dir::Etc::sourceparts=- -o "Dir::Etc::sourcelist=$d/gpuprov.sources" \
  -o "Dir::State::lists=$d/lists" update < /dev/null
