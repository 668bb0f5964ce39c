// SPDX-License-Identifier: GPL-2.0
// A gpuprov stand-in of nvidia-fs: it loads, says that it is one, and moves no data.
#include <linux/module.h>

static int __init nvfs_init(void)
{
	pr_info("nvidia_fs: a gpuprov stand-in, which drives nothing\n");
	return 0;
}

static void __exit nvfs_exit(void)
{
}

module_init(nvfs_init);
module_exit(nvfs_exit);
MODULE_LICENSE("GPL v2");
MODULE_VERSION(NVFS_VERSION);
MODULE_SOFTDEP("pre: nvidia");
MODULE_DESCRIPTION("gpuprov stand-in of nvidia-fs");
