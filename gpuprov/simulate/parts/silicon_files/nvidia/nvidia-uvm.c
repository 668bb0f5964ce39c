// SPDX-License-Identifier: MIT
/* A stand-in for NVIDIA's kernel module of the same name, made by gpuprov for its simulation: it manages no memory. */
#include <linux/fs.h>
#include <linux/module.h>

#include "shared.h"
#include "stand-in.h"

static const struct file_operations operations = { .owner = THIS_MODULE };
static int major_number;

static int __init begin(void)
{
	int status = nvidia_get_rm_ops();

	if (status)
		return status;
	major_number = __register_chrdev(0, 0, 2, "nvidia-uvm", &operations);
	return major_number < 0 ? major_number : 0;
}

static void __exit end(void)
{
	__unregister_chrdev(major_number, 0, 2, "nvidia-uvm");
}

module_init(begin);
module_exit(end);
MODULE_LICENSE("Dual MIT/GPL");
MODULE_VERSION(NV_VERSION_STRING);
MODULE_DESCRIPTION("gpuprov stand-in for the NVIDIA UVM module " NV_VERSION_STRING ": drives no hardware");
MODULE_INFO(supported, "external");
