// SPDX-License-Identifier: GPL-2.0
/* A stand-in of gpuprov's simulated hosts for ib_uverbs of NVIDIA's OFED: the symbol by which a build that knows dma-buf is recognized, and
 * nothing behind it. https://github.com/torvalds/linux/blob/v6.1/drivers/infiniband/core/umem_dmabuf.c */
#include <linux/module.h>

void *ib_umem_dmabuf_get(void);
void *ib_umem_dmabuf_get(void)
{
	return NULL;
}
EXPORT_SYMBOL(ib_umem_dmabuf_get);

MODULE_DESCRIPTION("gpuprov stand-in for a module of OFED");
MODULE_VERSION(OFED_VERSION);
MODULE_LICENSE("GPL");
