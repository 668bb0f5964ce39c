#!/bin/sh
# usage: build.sh nccl|nvbandwidth FOLDER PROGRAM [mpi]
# Builds FOLDER.archive into FOLDER, which is there whole, or not at all; FOLDER/built says where the program lies.
set -eu
name=$1 folder=$2 program=$3 mpi=${4:-}
work=$(mktemp -d "$folder.XXXXXX")
trap 'rm -rf "$work"' EXIT
mkdir "$work/source" "$work/new"
tar -xf "$folder.archive" -C "$work/source" --no-same-owner
source=$work/source
for one in "$work/source"/*; do
  [ -d "$one" ] && [ "$(ls -A "$work/source" | wc -l)" = 1 ] && source=$one
done
nvcc=$(command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null) || { echo 'no nvcc, in PATH or below /usr/local/cuda' >&2; exit 1; }
cuda=${nvcc%/bin/nvcc} log=$folder.log
PATH=$PATH:$cuda/bin
jobs=$(nproc)
said() { echo "$1 failed: $(grep -iE 'error|not found|cannot' "$log" | head -n 3 | tr '\n' ' ')" >&2; exit 1; }
case $name in
nccl)
  set -- "CUDA_HOME=$cuda" "BUILDDIR=$work/new/bin"
  if [ -n "$mpi" ]; then
    # The folder that has MPI's headers, as nccl-tests wants it: https://github.com/NVIDIA/nccl-tests#build
    compiler=$(readlink -f "$(command -v mpicc)") || { echo 'across hosts it needs MPI: no mpicc' >&2; exit 1; }
    for home in "${compiler%/bin/*}" /usr/lib/*/openmpi /usr/lib64/openmpi; do
      [ -e "$home/include/mpi.h" ] && set -- "$@" MPI=1 "MPI_HOME=$home" && break
    done
    case $* in *MPI=1*) ;; *) echo 'across hosts it needs MPI: no mpi.h beside mpicc' >&2; exit 1 ;; esac
  fi
  make -C "$source" -j "$jobs" "$@" >"$log" 2>&1 || said make
  ;;
nvbandwidth)
  mkdir -p "$work/new/bin"
  cmake -S "$source" -B "$work/build" -DCMAKE_BUILD_TYPE=Release "-DCMAKE_CUDA_COMPILER=$nvcc" >"$log" 2>&1 || said cmake
  cmake --build "$work/build" -j "$jobs" >>"$log" 2>&1 || said 'the build'
  cp "$work/build/nvbandwidth" "$work/new/bin/"
  ;;
esac
[ -x "$work/new/bin/$program" ] || { echo "the build made no $program" >&2; exit 1; }
echo "bin/$program" >"$work/new/built"
chmod -R u=rwX,go=rX "$work/new"
rm -rf "$folder"
mv "$work/new" "$folder"
