"""usage: sign.py VERSION SERIAL KEY CERTIFICATE KERNEL...

Signs the modules that DKMS has built of this driver version anew where another key signed them, without building them again, and
lets DKMS install them. The answer is one JSON document: {"signed": ["KERNEL: MODULE ..."], "problem": ""}.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from glob import glob

MAGIC = b"~Module signature appended~\n"
HEAD = 12
"""Bytes between signature and MAGIC, of which the last four are the signature's length
(https://github.com/torvalds/linux/blob/master/include/linux/module_signature.h)."""
# As the kernel's own scripts/Makefile.modinst compresses.
COMPRESSORS = {".zst": ["zstd", "-T0", "-q", "-c"], ".gz": ["gzip", "-n", "-c"], ".xz": ["xz", "--check=crc32", "-c"]}


def run(*argv, **more):
    """What the command prints. Raises RuntimeError with its complaint."""
    done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False, **more)
    if done.returncode:
        told = (done.stderr + done.stdout).decode(errors="replace").split("\n")
        raise RuntimeError(" ".join([" ".join(argv[:4]), *told]).strip())
    return done.stdout


def serial(file):
    """The serial number of the certificate that signed a module; empty without a signature."""
    shown = run("modinfo", "-F", "sig_key", file).decode().replace(":", "")
    return "".join(shown.split()).lower().lstrip("0")


def unsigned(content):
    """The module without its signature."""
    if not content.endswith(MAGIC):
        return content
    end = len(content) - len(MAGIC)
    return content[: end - HEAD - int.from_bytes(content[end - 4 : end], "big")]


def hash_of(kernel):
    """The hash that the kernel's own modules are signed with."""
    for file in ("/lib/modules/%s/build/.config" % kernel, "/boot/config-" + kernel):
        if os.path.exists(file):
            with open(file, encoding="utf-8") as config:
                found = re.search('^CONFIG_MODULE_SIG_HASH="(.+)"', config.read(), re.MULTILINE)
            if found:
                return found.group(1)
    return "sha256"


def signer(kernel):
    """The program that signs: the kernel's, or Ubuntu's, as DKMS takes it."""
    mine = "/lib/modules/%s/build/scripts/sign-file" % kernel
    found = mine if os.access(mine, os.X_OK) else shutil.which("kmodsign")
    if not found:
        raise RuntimeError("%s is not there, nor is kmodsign" % mine)
    return found


def sign(file, kernel, key, certificate):
    """Sign one module in place, compressed as it was."""
    plain, ending = os.path.splitext(file)
    pack = COMPRESSORS.get(ending)
    work = (plain if pack else file) + ".gpuprov"
    try:
        if pack:
            content = run(*pack, "-d", file)
        else:
            with open(file, "rb") as module:
                content = module.read()
        with open(work, "wb") as module:
            module.write(unsigned(content))
        run(signer(kernel), hash_of(kernel), key, certificate, work)
        if pack:
            content = run(*pack, work)
            with open(work, "wb") as module:
                module.write(content)
        os.chmod(work, 0o644)
        os.replace(work, file)
    finally:
        if os.path.exists(work):
            os.remove(work)


def main(version, wanted, key, certificate, *kernels):
    """Go through the kernels; a problem ends it."""
    told = {"signed": [], "problem": ""}
    for kernel in kernels:
        for folder in glob("/var/lib/dkms/nvidia*/%s/%s/*/module" % (version, kernel)):
            files = sorted(one for one in glob(folder + "/*.ko*") if not one.endswith(".gpuprov"))
            name = folder.split("/")[4]
            try:
                wrong = [file for file in files if serial(file) != wanted]
                for file in wrong:
                    sign(file, kernel, key, certificate)
                installed = glob("/lib/modules/%s/*/**/nvidia*.ko*" % kernel, recursive=True)
                mine = {os.path.basename(file).partition(".ko")[0] for file in files}
                late = [
                    one
                    for one in installed
                    if os.path.basename(one).partition(".ko")[0] in mine and serial(one) != wanted
                ]
                if wrong or late:
                    run("dkms", "install", "--force", "-m", name, "-v", version, "-k", kernel)
                    told["signed"].append(
                        "%s: %s" % (kernel, " ".join(os.path.basename(file) for file in wrong or late))
                    )
            except (RuntimeError, OSError) as error:
                told["problem"] = "kernel %s: %s" % (kernel, error)
                return told
    return told


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))
