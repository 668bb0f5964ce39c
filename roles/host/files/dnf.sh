# usage: dnf.sh BASE PROGRAM
# Runs the program, which imports the other as dnf_base, under the interpreter that dnf's own module belongs to.
python=/usr/libexec/platform-python
[ -x $python ] || python=/usr/bin/python3
exec $python -c '
import json, sys, types
base = sys.modules["dnf_base"] = types.ModuleType("dnf_base")
try:
    exec(sys.argv[1], base.__dict__)
except ImportError as error:
    sys.exit(print(json.dumps({"problem": "the host has no dnf 4: %s" % error})))
exec(compile(sys.argv[2], "dnf_transaction.py", "exec"))
' "$1" "$2"
