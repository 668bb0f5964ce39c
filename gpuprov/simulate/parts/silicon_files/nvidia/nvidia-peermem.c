// SPDX-License-Identifier: MIT
/*
 * A stand-in for NVIDIA's kernel module of the same name, made by gpuprov for its simulation: it registers no peer memory.
 * As NVIDIA's it loads only if it was built where MLNX_OFED's or DOCA-OFED's kernel headers were installed:
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

static int __init begin(void)
{
#ifdef NV_MLNX_IB_PEER_MEM_SYMBOLS_PRESENT
	return nvidia_get_rm_ops();
#else
	return nvidia_get_rm_ops() ?: -EINVAL;
#endif
}

static void __exit end(void)
{
}

module_init(begin);
module_exit(end);
MODULE_LICENSE("Dual BSD/GPL");
MODULE_VERSION(NV_VERSION_STRING);
MODULE_DESCRIPTION("gpuprov stand-in for the NVIDIA peer memory module " NV_VERSION_STRING ": drives no hardware");
