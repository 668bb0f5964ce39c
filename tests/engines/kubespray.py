"""What Kubespray writes for containerd, in the shape of its templates; DEFAULT and VERSION are filled in."""

from __future__ import annotations

SYSTEMD = '    SystemdCgroup = true\n    BinaryName = "/usr/local/bin/runc"\n'
KUBESPRAY = {
    2: """\
# one file for containerd 1
version = 2
root = "/var/lib/containerd"
oom_score = 0
[grpc]
  max_recv_message_size = 16777216
[debug]
  level = "info"
[plugins]
  [plugins."io.containerd.grpc.v1.cri"]
    sandbox_image = "registry.k8s.io/pause:3.10"
    enable_unprivileged_ports = false
    [plugins."io.containerd.grpc.v1.cri".containerd]
      default_runtime_name = "DEFAULT"
      snapshotter = "overlayfs"
      discard_unpacked_layers = true
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
        runtime_type = "io.containerd.runc.v2"
        [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
"""
    + SYSTEMD
    + '  [plugins."io.containerd.grpc.v1.cri".registry]\n    config_path = "/etc/containerd/certs.d"\n',
    3: """\
version = VERSION
root = "/var/lib/containerd"
oom_score = 0
[debug]
  level = "info"
[plugins]
  [plugins."io.containerd.cri.v1.images"]
    snapshotter = "overlayfs"
    discard_unpacked_layers = true
    # mirrors
    [plugins."io.containerd.cri.v1.images".registry]
      config_path = "/etc/containerd/certs.d"
    [plugins."io.containerd.cri.v1.images".pinned_images]
      sandbox = "registry.k8s.io/pause:3.10"
  [plugins."io.containerd.cri.v1.runtime"]
    enable_unprivileged_ports = false
    enable_cdi = true
    [plugins."io.containerd.cri.v1.runtime".containerd]
      default_runtime_name = "DEFAULT"
      [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
        runtime_type = "io.containerd.runc.v2"
        [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
"""
    + SYSTEMD,
}
KUBESPRAY_NVIDIA = """\
      [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.nvidia]
        runtime_type = "io.containerd.runc.v2"
        [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.nvidia.options]
          BinaryName = "/usr/bin/nvidia-container-runtime"
"""
