"""Lines of programs that are not about GPUs, well or failed, and of hosts that are well: no message in them is one of
ours."""

from __future__ import annotations

import pytest

from gpuprov.catalog.context import compile_any, fold
from gpuprov.catalog.lookup import find_symptom
from gpuprov.catalog.symptoms import list_symptoms
from gpuprov.core.errors import GpuprovError
from gpuprov.explain import explain, in_text
from gpuprov.explain.messages import symptoms_in
from tests.rows import run_each

FOREIGN = """\
arecord: main:831: audio open error / capture device error: No such file or directory
nvme nvme0: failed; device error: 0x2002
megaraid_sas 0000:18:00.0: FW in FAULT state, device error: resetting
mdadm: No devices found in config file or command line
iscsid: No devices found
rocBLAS error: Could not initialize Tensile host: No devices found
adb: error: No devices were found
cryptsetup: Required key not available
ecryptfs: Could not find key with description: Required key not available
systemd[1]: Failed to start zfs-import; Key was rejected by service
HTTP 507: Insufficient Resources on cluster
mesos-master[31]: task lost: Insufficient Resources
java.lang.RuntimeException: migration refused: Insufficient Resources
Warning UnexpectedAdmissionError kubelet Allocate failed due to not enough cpus available to satisfy request
Warning UnexpectedAdmissionError kubelet Allocate failed due to requested number of devices unavailable for rdma/hca_shared_devices
Oops: no free slot in the dialogue queue
rails[7]: Oops: something went wrong
xhci_hcd 0000:01:00.2: can't change power state from D3cold to D0 (config space inaccessible)
nvme 0000:03:00.0: Unable to change power state from D3cold to D0 (config space inaccessible)
ath10k_pci 0000:02:00.0: can't change power state from D3hot to D0 (config space inaccessible)
vfio-pci 0000:42:00.0: can't change power state from D3cold to D0 (config space inaccessible)
pcieport 0000:06:01.0: Unable to change power state from D3cold to D0, device inaccessible
usb 1-4: the camera has fallen off the bus
systemd[1]: mongo.service: Control process exited, code=exited, status=127/n/a
systemd[1]: node_exporter.service: Main process exited, code=exited, status=128/n/a
systemd[1]: postfix.service: Main process exited, code=exited, status=12/n/a
kubelet: container exited with status=120
level=info msg="request completed" status=120 path=/healthz
nginx: 10.0.0.1 - - "GET /v2" status=1200 upstream
slurmctld: Got completion from peer; status=12
 * dkms: autoinstall for kernel 6.8.9                                    [ OK ]
dkms: autoinstall for kernel: 6.8.0-31-generic ...done.
dkms: running auto installation service for kernel 6.1.0-26-arm64.
dkms: autoinstall for kernel: 6.1.0-26-arm64.
dkms autoinstall on 6.8.0-31-generic/x86_64 succeeded for nvidia
Building DKMS module: nvidia/580.95.05 ... done
error: Bad exit status from /var/tmp/rpm-tmp.abc (%build)
postgres: transaction id xid 79 wraparound warning
mysqld: XA recovery: Xid 119 rolled back, transaction done
dhclient: DHCPREQUEST on eth0 xid=0x4f (79)
dhcpd: DHCPACK xid 79 to 10.0.0.7
rpc.statd: reply to xid 48 lost
sshd[99]: error: kex_exchange_identification: Connection closed by peer
client_loop: send disconnect: Software caused connection abort
sshd[24227]: Disconnecting: Too many authentication failures for root [preauth]
[ 1527.588] (EE) Caught signal 11 (Segmentation fault). Server aborting
pop-system-updater[2734]: The following signatures were invalid: EXPKEYSIG 2F7F0DA5FD5B64B9 home:strycore OBS Project
nginx[3]: recv() failed : Connection reset by peer
nginx[3]: send() failed : Broken pipe
redis: Call to connect failed: retry
pacemakerd: Heartbeat monitor timed out
Port 80 is currently in use by another process
tomcat: Server encountered a fatal exception
sendmail: Failed to start : invalid argument
bash: ./a.out: cannot execute binary file: Exec format error
systemd[1]: Failed to execute /usr/local/bin/foo: Exec format error
bash: make: command not found
CMake Error: /home/build/src/build: No such file or directory
firefox[8]: killed by signal: Bus error
floppy0: driver error: timed out
IPMI: Error 803 while reading the sensor
HTTP Error 8031
gitlab: *** Reboot required. ***
EDAC amd64: Node 0: DRAM ECC disabled.
vm-manager: VM state: INIT
ovirt: State: Initializing the host
libbpf: Error in bpf_object__probe_loading(): RLIMIT_MEMLOCK may be too low
bpftool: failed to raise RLIMIT_MEMLOCK
amdgpu: request_free_mem_region failed
modinfo: ERROR: Module zfs not found.
vboxdrv: module verification failed: signature and/or required key missing - tainting kernel
nouveau 0000:01:00.0: Direct firmware load for nvidia/tu116/nvdec/scrubber.bin failed with error -2
All matches were filtered out by modular filtering for argument: postgresql
  - package kernel-5.14.0-503.el9.x86_64 from baseos is filtered out by exclude filtering
The operation would result in switching of module 'postgresql' stream '10' to stream '12'
Problem: nothing provides dkms needed by zfs-dkms-2.2.4-1.el9.noarch from zfs
E: Conflicting values set for option Signed-By regarding source https://download.docker.com/linux/ubuntu/ noble
 docker-ce : Depends: containerd.io (>= 1.7.27) but it is not installable
lxc: failed to setup cgroup: devices.allow: no such file or directory
crun: failed to add device rules
unresolvable CDI devices amd.com/gpu=all
minikube: failed to create FS watcher: permission denied
RuntimeError: HIP error: an illegal memory access was encountered
RuntimeError: HIP error: invalid device ordinal
RuntimeError: HIP error: no kernel image is available for execution on the device
RuntimeError: HIP error: unspecified launch failure
rustc: Unsupported GPU architecture 'sm_20' in target list
app: system not yet initialized
ros2: unhandled system error
jest: Test exited with Error in suite 3
telegraf: Failed to open device of the sensor
backup: sh: echo: I/O error on tape
drbd: resource moved to error state
cups: Unsupported connection type usb
myapp: Internal error detected: 17
payments: Requesting a reset of the password
i40e 0000:5e:00.0: Cable error, link down
doorstop: Incompatible platform detected, bailing out.
virtio_net: failed to initialize: error 802
CIFS: VFS: No such device
pam_unix(sshd:session): session opened for user root by (uid=0)
ACPI Error: Needed type [Reference], found [Integer] 0000000012345678 (20230628/exresop-66)
nvidia-uvm: Loaded the UVM driver, major device number 511.
nvidia 0000:41:00.0: vgaarb: VGA decodes changed: olddecodes=none,decodes=none:owns=none
nvidia-nvlink: Nvlink Core is being initialized, major device number 234
sudo: root : TTY=pts/0 ; COMMAND=/usr/bin/nvidia-smi -ac 877,1380
""".splitlines()
TEXTS = {
    "a healthy upgrade of a kernel": """\
depmod...
dkms autoinstall on 6.8.0-63-generic/x86_64 succeeded for nvidia
 * dkms: autoinstall for kernel 6.8.0-63-generic
   ...done.
Processing triggers for linux-image-6.8.0-63-generic (6.8.0-63.66) ...
""",
    "another package": """\
The following packages have unmet dependencies:
 docker-ce : Depends: containerd.io (>= 1.7.27) but it is not installable
E: Unable to correct problems, you have held broken packages.
""",
    "a network card of a virtual machine": """\
5e:00.1 Ethernet controller: Intel Corporation Ethernet Controller E810-C (rev 02)
\tSubsystem: Intel Corporation Ethernet Network Adapter E810-C-Q2
\tKernel driver in use: vfio-pci
""",
    "a port of Ethernet": """\
hca_id:\tmlx5_0
\t\tport:\t1
\t\t\tstate:\t\t\tPORT_ACTIVE (4)
\t\t\tsm_lid:\t\t\t0
\t\t\tport_lid:\t\t0
\t\t\tlink_layer:\t\tEthernet
""",
    "a program with a chosen name": "[ 1300.1] python3[4242]: segfault at 0 ip 00007f error 4 in NVRM: Xid "
    "(PCI:0000:1b:00): 79\n",
    "a healthy boot": """\
[    0.000000] Linux version 6.8.0-87-generic (buildd@lcy02-amd64-034)
[    2.100000] nvme 0000:03:00.0: enabling device (0000 -> 0002)
[    9.846118] NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build
[    9.900000] nvidia 0000:41:00.0: enabling device (0140 -> 0142)
[   10.000000] [drm] Initialized nvidia-drm 0.0.0 for 0000:41:00.0 on minor 1
""",
}


def found(text: str) -> list[str]:
    """The symptoms of a text, pasted and piped."""
    return [one.key for one in find_symptom(text)] + [one.symptom.key for one in symptoms_in(text)]


@run_each("before", ["{}", "Nov 28 10:00:00 gpu01 {}", "2026-11-28T10:00:00+00:00 nvidia-a100-3 {}"])
def test_a_foreign_line_is_unknown(before: str) -> None:
    lines = [before.format(line) for line in FOREIGN if before == "{}" or ": " in line]
    assert {line: keys for line in lines if (keys := found(line))} == {}
    for line in lines:
        with pytest.raises(GpuprovError):
            explain(line)
        with pytest.raises(GpuprovError):
            in_text(line, "a log")


@run_each("name", TEXTS)
def test_a_text_of_other_matters_is_unknown(name: str) -> None:
    assert [one.symptom.key for one in symptoms_in(TEXTS[name])] == []


def test_no_symptom_is_in_them_together() -> None:
    assert [one.symptom.key for one in symptoms_in("\n".join(FOREIGN))] == []


def test_what_a_signature_needs_is_of_it() -> None:
    for symptom in list_symptoms():
        for one in symptom.needs:
            assert set(one.of) <= {*symptom.signatures, *symptom.fallbacks}, symptom.key
            assert one.words, symptom.key
            held = [text for text in one.of or symptom.signatures if compile_any(one.words).search(fold(text))]
            assert not held, f"{symptom.key}: {held} hold what they need themselves"


def test_a_port_of_infiniband_without_a_lid_is_told() -> None:
    text = TEXTS["a port of Ethernet"].replace("Ethernet", "InfiniBand")
    assert [one.symptom.key for one in symptoms_in(text)] == ["infiniband-port-init"]


def test_a_gpu_by_its_address_is_one_whoever_has_it() -> None:
    lost = "vfio-pci 0000:41:00.0: can't change power state from D3cold to D0 (config space inaccessible)"
    assert found(lost) == []
    for other in (
        "NVRM: GPU 0000:41:00.0: is already bound to vfio-pci.",
        "41:00.0 3D controller [0302]: NVIDIA Corporation GH100 [10de:2330] (rev a1)",
    ):
        assert "gpu-lost" in [one.symptom.key for one in symptoms_in(f"{other}\n{lost}\n")]
    assert "gpu-lost" in found(lost.replace("vfio-pci", "nvidia"))


@run_each(
    ("line", "key"),
    [
        ("2024/01/04 07:43:58 Incompatible platform detected", "kubernetes-nvml"),
        ("[    4.1] Reading register timed out.", "efa-dead"),
        ("Error: No devices were found", "smi-no-devices"),
        ("[2023-10-16T10:42:01.139] error: Reading register timed out.", "efa-dead"),
        ("kernel: Loading of unsigned module is rejected", "module-key-rejected"),
    ],
)
def test_a_message_that_is_the_whole_line_needs_nothing_beside_it(line: str, key: str) -> None:
    assert set(found(line)) == {key}


@run_each(
    ("name", "old", "new", "key"),
    [
        ("a healthy upgrade of a kernel", "...done.", "...fail!", "dkms-build-failed"),
        ("another package", "docker-ce : Depends: containerd.io", "cuda-drivers : Depends: dkms",
         "apt-unmet-dependencies"),
        ("a network card of a virtual machine", "Intel Corporation Ethernet Controller", "NVIDIA Corporation GH100",
         "vfio-bound"),
        ("a healthy boot", "NVRM: loading", "NVRM: Xid (PCI:0000:41:00): 79, GPU has fallen off the bus", "xid-79"),
    ],
)  # fmt: skip
def test_the_same_text_of_a_gpu_that_is_not_well_is_told(name: str, old: str, new: str, key: str) -> None:
    assert old in TEXTS[name]
    assert [one.symptom.key for one in symptoms_in(TEXTS[name].replace(old, new))][:1] == [key]
