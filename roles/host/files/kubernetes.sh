# usage: kubernetes.sh pause|resume NODE [OPTION of kubectl drain]...
# For the machine from which kubectl reaches the cluster. pause: cordons and drains the node, and takes the GPU operator's own pods off it,
# which are of DaemonSets and hold the GPUs: by the node labels that select them, as NVIDIA's k8s-driver-manager does it. resume: puts
# back what pause has changed, which stands in an annotation of the node: labels that somebody else has changed stay.
# https://github.com/NVIDIA/k8s-driver-manager
set -eu
action=$1 node=$2 paused=paused-for-driver-upgrade note=gpuprov/paused
shift 2
labels() { kubectl get node "$node" --show-labels --no-headers | awk '{print $NF}' | tr ',' '\n'; }
ours=$(kubectl get node "$node" -o "jsonpath={.metadata.annotations.gpuprov/paused}")
there=$(labels)

if [ "$action" = resume ]; then
  [ -n "$ours" ] || exit 0
  for one in $(echo "$ours" | tr ',' ' '); do
    case $one in
      cordon) kubectl uncordon "$node" ;;
      nvidia.com/*) if echo "$there" | grep -qxF "$one=$paused"; then kubectl label --overwrite node "$node" "$one=true"; fi ;;
    esac
  done
  kubectl annotate node "$node" "$note-"
  exit 0
fi

others=$(echo "$there" | grep '^nvidia[.]com/gpu[.]deploy[.].*=.*paused-for' || true)
if [ -z "$ours" ] && [ -n "$others" ]; then
  echo "another change of driver or MIG is under way on node $node:" $others
  exit 1
fi
operands=$(echo "$there" | sed -n 's,^\(nvidia[.]com/gpu[.]deploy[.][^=]*\)=true$,\1,p' | grep -vx 'nvidia.com/gpu.deploy.driver' || true)
if [ -z "$ours" ]; then
  cordon=cordon
  [ "$(kubectl get node "$node" -o 'jsonpath={.spec.unschedulable}')" != true ] || cordon=
  kubectl annotate --overwrite node "$node" "$note=$(echo by-gpuprov $operands $cordon | tr ' ' ',')"
fi
kubectl cordon "$node"
for one in $operands; do kubectl label --overwrite node "$node" "$one=$paused"; done
kubectl drain "$node" --ignore-daemonsets "$@"
left=${GPUPROV_PATIENCE:-300}
while :; do
  pods=$(kubectl get pods --all-namespaces --field-selector "spec.nodeName=$node" --no-headers |
    awk '{print $2}' | grep -E '^(nvidia-(device-plugin|dcgm|mig-manager|operator-validator|container-toolkit)|gpu-feature-discovery)' || true)
  [ -n "$pods" ] && [ -n "$operands$ours" ] || break
  if [ "$left" -le 0 ]; then
    echo "still on node $node:" $pods
    exit 1
  fi
  sleep 2
  left=$((left - 2))
done
[ -z "$pods" ] || echo "node $node has no labels nvidia.com/gpu.deploy.*, by which the GPU operator's pods could be taken off:" $pods
