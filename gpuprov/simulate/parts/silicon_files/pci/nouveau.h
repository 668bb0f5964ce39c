/* SPDX-License-Identifier: GPL-2.0 */
/* gpuprov simulation: lets the real nouveau module bind simulated GPUs. */
#ifndef GPUPROV_SIM_NOUVEAU_H
#define GPUPROV_SIM_NOUVEAU_H

#include <linux/pci.h>

int nouveau_watch(bool (*simulated)(struct pci_dev *));
void nouveau_unwatch(void);

#endif
