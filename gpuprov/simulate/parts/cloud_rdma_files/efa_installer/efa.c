// SPDX-License-Identifier: GPL-2.0
/* A stand-in of gpuprov for AWS's efa: its name and its version, and nothing that drives hardware. */
#include <linux/errno.h>
#include <linux/module.h>

static int __init stand_in_init(void)
{
	pr_info("efa: a gpuprov stand-in, which drives nothing\n");
	return -ENODEV;
}

module_init(stand_in_init);
MODULE_VERSION("3.1.0g");
MODULE_SOFTDEP("pre: ib_uverbs");
MODULE_DESCRIPTION("Elastic Fabric Adapter (EFA) (gpuprov stand-in: drives no hardware)");
MODULE_AUTHOR("gpuprov");
MODULE_LICENSE("Dual BSD/GPL");
