"""The part `rdma.roce`: port settings for RDMA over Ethernet."""
