# usage: runfile.sh FILE SHA256
# The driver version of NVIDIA's .run file, by the words of its own header; status 3 if the file is not there. A file of another
# checksum, or that its own check finds damaged, is taken away.
file=$1
[ -s "$file" ] || exit 3
sum=$(sha256sum < "$file")
if [ "${sum%% *}" != "$2" ]; then
  rm -f "$file"
  echo "its SHA-256 is ${sum%% *}, and the spec says $2" >&2
  exit 1
fi
if ! answer=$(sh "$file" --check 2>&1); then
  rm -f "$file"
  echo "it has the checksum of the spec, and its own check says: $(echo "$answer" | tail -n 2 | tr '\n' ' ')" >&2
  exit 1
fi
head -c 65536 "$file" | tr -d '\0' | sed -n 's/^version_string=//p' | head -n 1 | tr -d '"'
