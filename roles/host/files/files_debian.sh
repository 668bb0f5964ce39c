# usage: files_debian.sh PACKAGE=VERSION...
# The file of each package in apt's archives, one a line; what is not there is downloaded.
cd /var/cache/apt/archives && folder=$(pwd -P) || exit 1
for one in "$@"; do
  name="${one%%=*}_$(echo "${one#*=}" | sed 's/:/%3a/')_*.deb"
  file=$(find "$folder" -maxdepth 1 -name "$name" -print -quit)
  if [ -z "$file" ]; then
    apt-get -qq download "$one" >&2 || exit 1
    file=$(find "$folder" -maxdepth 1 -name "$name" -print -quit)
  fi
  [ -n "$file" ] || { echo "$one is not among the downloaded packages" >&2; exit 1; }
  echo "$file"
done
