# usage: repository_redhat.sh NAME
# Asks for the index with the texts $GPUPROV_SOURCE and $GPUPROV_KEY in a folder of their own; of the host nothing is read but dnf's
# settings.
set -e
d=$(mktemp -d)
trap 'rm -rf "$d"' EXIT
printf '%s' "$GPUPROV_KEY" > "$d/key.asc"
printf '%s' "$GPUPROV_SOURCE" | sed "s#^gpgkey=.*#gpgkey=file://$d/key.asc#" > "$d/gpuprov.repo"
dnf -q -y --disablerepo='*' --enablerepo="gpuprov-$1" --setopt=timeout=30 --setopt=retries=2 --noplugins --setopt=reposdir="$d" \
  --setopt=cachedir="$d/cache" makecache --refresh < /dev/null
