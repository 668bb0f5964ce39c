// SPDX-License-Identifier: MIT
/* A stand-in for NVIDIA's kernel module of the same name, made by gpuprov for its simulation: it makes no DRM device. */
#include <linux/module.h>

#include "shared.h"
#include "stand-in.h"

static bool modeset;
module_param(modeset, bool, 0400);
MODULE_PARM_DESC(modeset, "accepted and shown, without effect in this stand-in");
static bool fbdev;
module_param(fbdev, bool, 0400);
MODULE_PARM_DESC(fbdev, "accepted and shown, without effect in this stand-in");

static int __init begin(void)
{
	return nvKmsKapiGetFunctionsTable();
}

static void __exit end(void)
{
}

module_init(begin);
module_exit(end);
MODULE_LICENSE(NV_DRM_LICENSE);
MODULE_VERSION(NV_VERSION_STRING);
MODULE_DESCRIPTION("gpuprov stand-in for the NVIDIA DRM module " NV_VERSION_STRING ": drives no hardware");
MODULE_INFO(supported, "external");
