/* SPDX-License-Identifier: GPL-2.0 */
/* gpuprov simulation: the configuration space of one PCI function, held in memory. */
#ifndef GPUPROV_SIM_CONFIG_SPACE_H
#define GPUPROV_SIM_CONFIG_SPACE_H

#include <linux/pci.h>

static inline u16 get16(const u8 *at)
{
	return at[0] | at[1] << 8;
}

static inline void put16(u8 *at, u16 value)
{
	at[0] = value;
	at[1] = value >> 8;
}

static inline void put32(u8 *at, u32 value)
{
	put16(at, value);
	put16(at + 2, value >> 16);
}

struct function {
	u8 config[PCI_CFG_SPACE_SIZE];
	u8 writable[PCI_CFG_SPACE_SIZE];	/* the bits of each byte that software can change */
	u8 vpd[256];
	bool lost;
};

u32 function_read(struct function *function, int where, int size);
void function_write(struct function *function, int where, int size, u32 value);
void function_init(struct function *function, u16 vendor, u16 device, u16 sub_vendor, u16 sub_device, u32 class);
/* `uuid` as NVML writes it, `vpd` the text of field V3; "-" for none. */
void function_identify(struct function *function, const char *uuid, const char *name, const char *vpd);

#endif
