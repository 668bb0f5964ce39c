# A stand-in of gpuprov's simulated hosts for NVIDIA's hpcx-init.sh.
HPCX_HOME=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")" && pwd)
hpcx_load() {
  export HPCX_HOME OPAL_PREFIX=$HPCX_HOME/ompi
  export PATH=$HPCX_HOME/ucx/bin:$HPCX_HOME/ompi/bin:$PATH
}
