# usage: apt.sh PREFERENCES ARGUMENT...
# apt-get with these preferences before those of the host: the first record that fits a version decides (apt_preferences(5)).
preferences=$1
shift
[ -n "$preferences" ] || exec apt-get "$@"
file=$(mktemp) || exit 1
trap 'rm -f "$file"' EXIT
trap 'exit 1' HUP INT TERM
{ echo "$preferences"; echo; cat /etc/apt/preferences 2> /dev/null; } > "$file"
chmod 0644 "$file"
apt-get -o "Dir::Etc::preferences=$file" "$@"
