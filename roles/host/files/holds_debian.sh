# What is held; behind a line of "==" the installed packages of foreign architectures, as NAME:ARCHITECTURE; behind another one
# the names of which nothing else is installed.
apt-mark showhold
echo ==
rows=$(dpkg-query -W -f '${db:Status-Abbrev}|${Package}|${Architecture}\n' | awk -F '|' -v own="$(dpkg --print-architecture)" '
  $1 !~ /^.[iUFHWt]/ { next }
  $3 == "all" || $3 == own { native[$2] = 1; next }
  { name[$2 ":" $3] = $2 }
  END { for (one in name) print one, (name[one] in native) ? "" : name[one] }')
echo "$rows" | cut -d ' ' -f 1
echo ==
echo "$rows" | cut -s -d ' ' -f 2
