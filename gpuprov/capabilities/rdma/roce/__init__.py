"""The part `rdma.roce`: what RDMA over Ethernet asks of each port."""
