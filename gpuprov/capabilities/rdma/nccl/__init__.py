"""The part `rdma.nccl`: what NCCL is told of this host."""
