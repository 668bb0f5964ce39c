"""The part `rdma.efa`: AWS's Elastic Fabric Adapter."""
