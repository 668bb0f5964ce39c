// SPDX-License-Identifier: GPL-2.0
/* A stand-in of gpuprov's simulated hosts for a module of NVIDIA's OFED: its name and its version, and nothing behind them. */
#include <linux/module.h>

MODULE_DESCRIPTION("gpuprov stand-in for a module of OFED");
MODULE_VERSION(OFED_VERSION);
MODULE_LICENSE("GPL");
