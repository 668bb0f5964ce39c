# usage: repository_redhat.sh try|fetch NAME
# try: with the texts $GPUPROV_SOURCE and $GPUPROV_KEY in a folder of their own; of the host nothing is read but dnf's settings.
# fetch: the lists of /etc/yum.repos.d/gpuprov-NAME.repo alone.
set -e
fresh() {
  dnf -q -y --disablerepo='*' --enablerepo="gpuprov-$1" --setopt=timeout=30 --setopt=retries=2 --noplugins "$2" "$3" \
    makecache --refresh < /dev/null
}
if [ "$1" = try ]; then
  d=$(mktemp -d)
  trap 'rm -rf "$d"' EXIT
  printf '%s' "$GPUPROV_KEY" > "$d/key.asc"
  printf '%s' "$GPUPROV_SOURCE" | sed "s#^gpgkey=.*#gpgkey=file://$d/key.asc#" > "$d/gpuprov.repo"
  fresh "$2" --setopt=reposdir="$d" --setopt=cachedir="$d/cache"
  exit
fi
fresh "$2" --setopt=reposdir=/etc/yum.repos.d --setopt=keepcache=0
