"""Stand-ins of k3s and of MicroK8s' wrapper: they write what containerd would read, and run no pods.

k3s by its public template (https://github.com/k3s-io/k3s/blob/master/pkg/agent/templates/templates.go, version 3) and
its documented settings; MicroK8s by its public wrapper, whose way of filling in the template this is:
https://github.com/canonical/microk8s/blob/master/microk8s-resources/wrappers/run-containerd-with-args
"""

K3S = r"""#!/bin/sh
[ "$1" = --version ] && echo "k3s version v1.33.5+k3s1 (stand-in)" && exit
d=$ROOT/var/lib/rancher/k3s/agent/etc/containerd; mkdir -p "$d"; c=$ROOT/etc/rancher/k3s
r=$(cat "$c/config.yaml" "$c"/config.yaml.d/*.yaml 2>/dev/null | sed -n 's/^default-runtime: *//p' | tail -n 1)
p="plugins.'io.containerd.cri.v1.runtime'.containerd"; n=$(command -v nvidia-container-runtime)
{
  printf "version = 3\n[plugins.'io.containerd.grpc.v1.cri']\n  stream_server_port = \"10010\"\n"
  [ -z "$r" ] || printf '[%s]\n  default_runtime_name = "%s"\n' "$p" "$r"
  printf '[%s.runtimes.runc]\n  runtime_type = "io.containerd.runc.v2"\n' "$p"
  [ -z "$n" ] || printf "[%s.runtimes.'nvidia']\n  runtime_type = \"io.containerd.runc.v2\"\n" "$p"
  [ -z "$n" ] || printf "[%s.runtimes.'nvidia'.options]\n  BinaryName = \"%s\"\n  SystemdCgroup = true\n" "$p" "${n#"$ROOT"}"
} > "$d/config.toml"
[ "$2" = once ] || exec sleep infinity
"""
MICROK8S = r"""#!/bin/sh
d=$ROOT/var/snap/microk8s/current/args
sed 's@${SNAPSHOTTER}@overlayfs@g; s@${RUNTIME}@runc@g' "$d/containerd-template.toml" > "$d/containerd.toml"
sed -i 's@${RUNTIME_TYPE}@io.containerd.runc.v2@g' "$d/containerd.toml"
"""
