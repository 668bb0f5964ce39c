"""The part `rdma.erdma`: Alibaba's eRDMA."""
