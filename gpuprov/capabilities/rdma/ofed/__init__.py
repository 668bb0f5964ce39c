"""The part `rdma.ofed`: NVIDIA's DOCA-OFED in place of the kernel's own RDMA drivers."""
