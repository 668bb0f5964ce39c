// SPDX-License-Identifier: MIT
/* A stand-in for NVIDIA's kernel module of the same name, made by gpuprov for its simulation: there is no display behind it. */
#include <linux/fs.h>
#include <linux/module.h>

#include "shared.h"
#include "stand-in.h"

enum { MAJOR_NUMBER = 195, MINOR_NUMBER = 254 };

static const struct file_operations operations = { .owner = THIS_MODULE };

/* nvidia-drm calls it; so it needs this module, and holds it. */
int nvKmsKapiGetFunctionsTable(void)
{
	return 0;
}
EXPORT_SYMBOL(nvKmsKapiGetFunctionsTable);

static int __init begin(void)
{
	return nvidia_get_rm_ops() ?:
	       __register_chrdev(MAJOR_NUMBER, MINOR_NUMBER, 1, "nvidia-modeset", &operations);
}

static void __exit end(void)
{
	__unregister_chrdev(MAJOR_NUMBER, MINOR_NUMBER, 1, "nvidia-modeset");
}

module_init(begin);
module_exit(end);
MODULE_LICENSE(NV_LICENSE);
MODULE_VERSION(NV_VERSION_STRING);
MODULE_DESCRIPTION("gpuprov stand-in for the NVIDIA modeset module " NV_VERSION_STRING ": drives no hardware");
MODULE_INFO(supported, "external");
