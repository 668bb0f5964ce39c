# usage: erdma_unpack.sh ARCHIVE SHA256 FOLDER
# Compares the archive's checksum, unpacks it, and prints the path of its install.sh. Status 3: there is no archive.
[ -s "$1" ] || exit 3
sum=$(sha256sum <"$1")
if [ "${sum%% *}" != "$2" ]; then
  rm -f "$1"
  echo "its SHA-256 is ${sum%% *}, and the spec says $2" >&2
  exit 1
fi
[ -n "$3" ] || exit 0
rm -rf "$3" && mkdir -p "$3" && chmod 0700 "$3" || exit 1
tar -xzf "$1" -C "$3" --no-same-owner || exit 1
found=$(find "$3" -maxdepth 2 -name install.sh -type f | head -n 1)
[ -n "$found" ] || { echo 'it has no install.sh' >&2; exit 1; }
echo "$found"
