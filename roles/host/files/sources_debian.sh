# usage: sources_debian.sh FILE...
# Prints a configuration for $APT_CONFIG with which apt knows all sources of the host but those in these files; nothing, and leaves
# nothing behind, where the host has none of them.
set -e
d=/run/gpuprov/apt
rm -rf "$d"
there=
for f in "$@"; do [ ! -e "$f" ] || there=1; done
[ -n "$there" ] || exit 0
mkdir -p "$d"
rm -rf "$d/sources.list.d"
mkdir "$d/sources.list.d"
for s in /etc/apt/sources.list.d/*; do
  [ -e "$s" ] || continue
  left=
  for f in "$@"; do [ "$s" != "$f" ] || left=1; done
  [ -n "$left" ] || ln -s "$s" "$d/sources.list.d/"
done
# The lists of the sources that it does not see are not its to clean up.
printf 'Dir::Etc::sourceparts "%s/sources.list.d";\nAPT::Get::List-Cleanup "0";\n' "$d" > "$d/apt.conf"
printf '%s' "$d/apt.conf"
