// SPDX-License-Identifier: GPL-2.0
/* A stand-in of gpuprov for Alibaba's erdma: its name and its parameters, and nothing that drives hardware. */
#include <linux/errno.h>
#include <linux/module.h>

#ifdef HAVE_ERDMA_MAD
static bool compat_mode = true;
MODULE_INFO(gpuprov_default, "compat_mode=Y");
MODULE_DESCRIPTION("Soft RDMA transport (gpuprov stand-in)");
#else
static bool compat_mode;
MODULE_INFO(gpuprov_default, "compat_mode=N");
#endif
static bool legacy_mode, rand_qpn, wwi_perf;
static ushort reserve_ports_base = 0x7790;
static uint vector_num;
static int default_cc = -1;

module_param(compat_mode, bool, 0444);
MODULE_PARM_DESC(compat_mode, "compat mode support");
module_param(legacy_mode, bool, 0444);
module_param(rand_qpn, bool, 0444);
module_param(wwi_perf, bool, 0644);
module_param(reserve_ports_base, ushort, 0444);
module_param(vector_num, uint, 0444);
module_param(default_cc, int, 0444);

static int __init stand_in_init(void)
{
	pr_info("erdma: a gpuprov stand-in, which drives nothing\n");
	return -ENODEV;
}

module_init(stand_in_init);
MODULE_DESCRIPTION("Alibaba elasticRDMA adapter driver (gpuprov stand-in: drives no hardware)");
MODULE_AUTHOR("gpuprov");
MODULE_LICENSE("Dual BSD/GPL");
