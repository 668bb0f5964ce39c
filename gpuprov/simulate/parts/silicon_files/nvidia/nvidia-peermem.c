// SPDX-License-Identifier: MIT
/*
 * A stand-in for NVIDIA's kernel module of the same name, made by gpuprov for its simulation: it registers no peer memory.
 * As NVIDIA's it loads only if it was built where MLNX_OFED's or DOCA-OFED's kernel headers were installed, and then against them:
 * https://github.com/NVIDIA/open-gpu-kernel-modules/blob/main/kernel-open/nvidia-peermem/nvidia-peermem.c
 */
#include <linux/module.h>

#include "shared.h"
#include "stand-in.h"

static int peerdirect_support;
module_param(peerdirect_support, int, 0444);
MODULE_PARM_DESC(peerdirect_support, "accepted and shown, without effect in this stand-in");
static int persistent_api_support = 1;
module_param(persistent_api_support, int, 0444);
MODULE_PARM_DESC(persistent_api_support, "accepted and shown, without effect in this stand-in");

#ifdef NV_MLNX_IB_PEER_MEM_SYMBOLS_PRESENT
/* What ib_core of OFED exports; a client of its own is a name, a version and callbacks, of which this stand-in has none. */
void *ib_register_peer_memory_client(const void *client, void *invalidate);
void ib_unregister_peer_memory_client(void *handle);

static const char client[256] = "nv_mem";
static void *handle;

static int allowed(const char *name, int value)
{
	if (value == 0 || value == 1)
		return 0;
	pr_err("nvidia-peermem %s:%d ERROR invalid %s param value %d\n", __func__, __LINE__, name, value);
	return -EINVAL;
}

static int __init begin(void)
{
	int status = nvidia_get_rm_ops() ?: allowed("peerdirect_support", peerdirect_support) ?:
		allowed("persistent_api_support", persistent_api_support);

	if (status)
		return status;
	handle = ib_register_peer_memory_client(client, NULL);
	return handle ? 0 : -EINVAL;
}

static void __exit end(void)
{
	ib_unregister_peer_memory_client(handle);
}
#else
static int __init begin(void)
{
	return nvidia_get_rm_ops() ?: -EINVAL;
}

static void __exit end(void)
{
}
#endif

module_init(begin);
module_exit(end);
MODULE_LICENSE("Dual BSD/GPL");
MODULE_VERSION(NV_VERSION_STRING);
MODULE_DESCRIPTION("gpuprov stand-in for the NVIDIA peer memory module " NV_VERSION_STRING ": drives no hardware");
