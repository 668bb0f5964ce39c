# usage: devices.py judge CONFIG
# Which MPS daemons a host should have: GPUs and MIG devices as they are now, by NVML, and what a configuration makes of them.
# Python 3.6 and newer, standard library only.
import ctypes
import json
import re
import sys

NOT_SUPPORTED, NOT_FOUND, INVALID = 3, 6, 2
DEFAULT, EXCLUSIVE_PROCESS = 0, 3


class Problem(Exception):
    """One line: what is wrong, and the way out."""


class Gone(Problem):
    """What a daemon is for is not there."""


class Unwanted(Gone):
    """The configuration has no such daemon."""


class Pci(ctypes.Structure):
    _fields_ = [
        ("legacy", ctypes.c_char * 16),
        ("domain", ctypes.c_uint),
        ("bus", ctypes.c_uint),
        ("device", ctypes.c_uint),
        ("identifier", ctypes.c_uint),
        ("subsystem", ctypes.c_uint),
        ("text", ctypes.c_char * 32),
    ]


class GpuInstance(ctypes.Structure):
    _fields_ = [
        ("gpu", ctypes.c_void_p),
        ("id", ctypes.c_uint),
        ("profile", ctypes.c_uint),
        ("start", ctypes.c_uint),
        ("size", ctypes.c_uint),
    ]


class ComputeInstance(ctypes.Structure):
    _fields_ = [
        ("gpu", ctypes.c_void_p),
        ("instance", ctypes.c_void_p),
        ("id", ctypes.c_uint),
        ("profile", ctypes.c_uint),
        ("start", ctypes.c_uint),
        ("size", ctypes.c_uint),
    ]


class Nvml:
    """NVIDIA's management library; its calls raise Problem."""

    def __init__(self):
        try:
            self.library = ctypes.CDLL("libnvidia-ml.so.1")
        except OSError as error:
            raise Problem("no libnvidia-ml.so.1: the driver is not installed; apply nvidia_driver first") from error
        self.call("nvmlInit_v2")

    def error(self, code):
        self.library.nvmlErrorString.restype = ctypes.c_char_p
        return self.library.nvmlErrorString(code).decode()

    def call(self, name, *arguments, **options):
        function = getattr(self.library, name, None)
        if function is None:
            raise Problem("the driver's libnvidia-ml.so.1 has no %s" % name)
        code = function(*arguments)
        if code and code not in options.get("allowed", ()):
            raise Problem("%s: %s" % (name, self.error(code)))
        return code

    def number(self, name, *arguments, **options):
        """What a call puts into its last argument; None where it may fail and does."""
        value = ctypes.c_uint()
        return None if self.call(name, *(arguments + (ctypes.byref(value),)), **options) else value.value

    def uuid(self, device):
        text = ctypes.create_string_buffer(96)
        self.call("nvmlDeviceGetUUID", device, text, ctypes.c_uint(96))
        return text.value.decode()

    def gpus(self):
        """Every GPU in NVML's order, with its MIG devices by placement."""
        found = []
        for index in range(self.number("nvmlDeviceGetCount_v2")):
            device, pci = ctypes.c_void_p(), Pci()
            self.call("nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(index), ctypes.byref(device))
            self.call("nvmlDeviceGetPciInfo_v3", device, ctypes.byref(pci))
            mig, pending = ctypes.c_uint(), ctypes.c_uint()
            code = self.call(
                "nvmlDeviceGetMigMode", device, ctypes.byref(mig), ctypes.byref(pending), allowed=(NOT_SUPPORTED,)
            )
            found.append(
                {
                    "index": index,
                    "uuid": self.uuid(device),
                    "address": "%04x:%02x:%02x.0" % (pci.domain, pci.bus, pci.device),
                    "mig": not code and mig.value == 1,
                    "devices": self.mig_devices(device) if not code and mig.value == 1 else [],
                    "handle": device,
                }
            )
        return found

    def mig_devices(self, gpu):
        rows = []
        for number in range(self.number("nvmlDeviceGetMaxMigDeviceCount", gpu) or 0):
            device = ctypes.c_void_p()
            if self.call(
                "nvmlDeviceGetMigDeviceHandleByIndex",
                gpu,
                ctypes.c_uint(number),
                ctypes.byref(device),
                allowed=(NOT_FOUND, INVALID),
            ):
                continue
            group = self.number("nvmlDeviceGetGpuInstanceId", device)
            compute = self.number("nvmlDeviceGetComputeInstanceId", device)
            handle, info = ctypes.c_void_p(), GpuInstance()
            self.call("nvmlDeviceGetGpuInstanceById", gpu, ctypes.c_uint(group), ctypes.byref(handle))
            self.call("nvmlGpuInstanceGetInfo", handle, ctypes.byref(info))
            inner, of = ctypes.c_void_p(), ComputeInstance()
            self.call("nvmlGpuInstanceGetComputeInstanceById", handle, ctypes.c_uint(compute), ctypes.byref(inner))
            self.call("nvmlComputeInstanceGetInfo_v2", inner, ctypes.byref(of))
            rows.append({"uuid": self.uuid(device), "start": info.start, "compute": of.start})
        return rows

    def compute_mode(self, gpu):
        return self.number("nvmlDeviceGetComputeMode", gpu["handle"])

    def set_compute_mode(self, gpu, mode):
        self.call("nvmlDeviceSetComputeMode", gpu["handle"], ctypes.c_uint(mode))


def selected(selector, gpus):
    """The GPU that an index, a PCI address or the beginning of a UUID names."""
    text = str(selector)
    match = re.match(r"(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}:[0-9a-f]{2}\.[0-7])\Z", text.lower())
    if text.isdigit():
        found = [gpu for gpu in gpus if gpu["index"] == int(text)]
    elif match:
        address = "%04x:%s" % (int(match.group(1) or "0", 16), match.group(2))
        found = [gpu for gpu in gpus if gpu["address"] == address]
    else:
        found = [gpu for gpu in gpus if gpu["uuid"].startswith(text)]
    if len(found) != 1:
        there = ", ".join("%(index)d (%(address)s, %(uuid)s)" % gpu for gpu in gpus) or "none"
        raise Gone("mps: no GPU is %s; there are: %s" % (text, there))
    return found[0]


def whole(gpus, what):
    for gpu in gpus:
        if gpu["mig"]:
            raise Gone(
                "mps: %s has GPU %d, which is in MIG mode; scope: mig, or mps.groups without it" % (what, gpu["index"])
            )
    return gpus


def group_names(config):
    return [group.get("name") or "group%d" % number for number, group in enumerate(config["groups"])]


def named(config, name):
    """Whether a daemon of this configuration can be called so, whatever devices there are."""
    patterns = {"host": "host", "gpu": "gpu[0-9]+", "mig": "gpu[0-9]+-mig[0-9]+(-ci[0-9]+)?", "none": "(?!)"}
    pattern = patterns.get(config["scope"])
    return name in group_names(config) if pattern is None else bool(re.match(pattern + r"\Z", name))


def daemons(config, gpus):
    """The daemons of a configuration: name, devices in the daemon's order, GPUs, directories."""
    scope, rows = config["scope"], []
    if scope == "none":
        return []
    if not gpus:
        raise Gone("mps: the driver has no GPU")
    if scope == "host":
        rows.append(("host", whole(gpus, "scope: host"), None))
    elif scope == "gpu":
        rows += [("gpu%d" % gpu["index"], whole([gpu], "scope: gpu"), None) for gpu in gpus]
    elif scope == "groups":
        taken = {}
        for number, name in enumerate(group_names(config)):
            mine = [selected(selector, gpus) for selector in config["groups"][number]["gpus"]]
            for gpu in mine:
                if gpu["index"] in taken:
                    raise Problem(
                        "mps.groups: GPU %d is in %s and again in %s" % (gpu["index"], taken[gpu["index"]], name)
                    )
                taken[gpu["index"]] = name
            rows.append((name, whole(mine, "group " + name), None))
    else:
        for gpu in gpus:
            for device in gpu["devices"]:
                shared = [other for other in gpu["devices"] if other["start"] == device["start"]]
                name = "gpu%d-mig%d" % (gpu["index"], device["start"])
                rows.append((name + ("-ci%d" % device["compute"] if len(shared) > 1 else ""), [gpu], device["uuid"]))
    paths = config["paths"]
    if scope != "host":
        return [
            {
                "name": name,
                "gpus": mine,
                "devices": [mig] if mig else [gpu["uuid"] for gpu in mine],
                "mig": bool(mig),
                "pipe": "%s/%s" % (paths["pipe_base"], name),
                "log": "%s/%s" % (paths["logs"], name),
            }
            for name, mine, mig in rows
        ]
    return [
        {
            "name": "host",
            "gpus": gpus,
            "devices": [gpu["uuid"] for gpu in gpus],
            "mig": False,
            "pipe": paths["pipes"][config["protocol"]],
            "log": paths["logs"],
        }
    ]


def limited(config, gpus):
    """Problem where a memory limit is for a GPU that is not there."""
    for key in config["memory"]:
        if key != "all":
            selected(key, gpus)


def judge(config):
    """What the host can be told of a configuration before anything is changed."""
    try:
        gpus = Nvml().gpus()
    except Problem as problem:
        return {"unknown": str(problem), "problem": "", "daemons": []}
    try:
        found = daemons(config, gpus)
        limited(config, gpus)
    except Problem as problem:
        return {"unknown": "", "problem": str(problem), "daemons": []}
    return {
        "unknown": "",
        "problem": "",
        "daemons": [{"name": one["name"], "devices": one["devices"]} for one in found],
    }


if __name__ == "__main__" and sys.argv[1:2] == ["judge"]:
    print(json.dumps(judge(json.loads(sys.argv[2]))))
