"""The part `rdma.nccl`: NCCL's configuration on this host."""
