// SPDX-License-Identifier: GPL-2.0
/* gpuprov simulation: the configuration space of one PCI function, held in memory. */
#include <linux/module.h>
#include <linux/uuid.h>

#include "config_space.h"

enum { EXPRESS = 0x40, VPD = 0x80, MARK = 0x90 };	/* where the capabilities lie */
static const char SIGNATURE[12] = "gpuprov-sim";	/* the stand-in driver binds only functions that carry it */

u32 function_read(struct function *function, int where, int size)
{
	u32 value = 0;

	while (size--)
		if (where + size < PCI_CFG_SPACE_SIZE)
			value |= (u32)function->config[where + size] << (8 * size);
	return value;
}

void function_write(struct function *function, int where, int size, u32 value)
{
	u8 *config = function->config;
	u16 offset;
	int i;

	for (i = where; i < where + size && i < PCI_CFG_SPACE_SIZE; i++, value >>= 8)
		config[i] = (config[i] & ~function->writable[i]) | (value & function->writable[i]);
	if (config[VPD] != PCI_CAP_ID_VPD || where > VPD + PCI_VPD_ADDR + 1 || where + size <= VPD + PCI_VPD_ADDR + 1)
		return;
	/* A request to read is the address with flag 0; the flag turns to 1 once the data are there. Writing does nothing. */
	offset = get16(config + VPD + PCI_VPD_ADDR);
	if (!(offset & PCI_VPD_ADDR_F))
		for (i = 0; i < 4; i++)
			config[VPD + PCI_VPD_DATA + i] = offset + i < sizeof(function->vpd) ? function->vpd[offset + i] : 0;
	put16(config + VPD + PCI_VPD_ADDR, offset ^ PCI_VPD_ADDR_F);
}

static void set_bar(struct function *function, int index, u32 size)
{
	int where = PCI_BASE_ADDRESS_0 + 4 * index;

	put32(function->config + where, PCI_BASE_ADDRESS_MEM_TYPE_64 | PCI_BASE_ADDRESS_MEM_PREFETCH);
	put32(function->writable + where, ~(size - 1));
	put32(function->writable + where + 4, ~0u);
}

/* PCI Express generation by device id: Turing and before 3; Hopper, Blackwell and ConnectX-7 5; others 4. */
static int generation(u16 vendor, u16 device)
{
	if (vendor != PCI_VENDOR_ID_NVIDIA || device >> 8 == 0x23 || device >> 8 >= 0x29)
		return 5;
	return device < 0x1f00 && device != 0x1af1 ? 3 : 4;
}

void function_init(struct function *function, u16 vendor, u16 device, u16 sub_vendor, u16 sub_device, u32 class)
{
	u8 *config = function->config, *writable = function->writable;
	int speed = generation(vendor, device);

	put16(config + PCI_VENDOR_ID, vendor);
	put16(config + PCI_DEVICE_ID, device);
	put16(config + PCI_SUBSYSTEM_VENDOR_ID, sub_vendor);
	put16(config + PCI_SUBSYSTEM_ID, sub_device);
	put32(config + PCI_CLASS_REVISION, class << 8 | 0xa1);
	put16(config + PCI_STATUS, PCI_STATUS_CAP_LIST);
	put16(writable + PCI_COMMAND, PCI_COMMAND_MEMORY | PCI_COMMAND_MASTER | PCI_COMMAND_PARITY | PCI_COMMAND_SERR |
				      PCI_COMMAND_INTX_DISABLE);
	writable[PCI_CACHE_LINE_SIZE] = writable[PCI_LATENCY_TIMER] = writable[PCI_INTERRUPT_LINE] = 0xff;
	set_bar(function, 0, class >> 16 == PCI_BASE_CLASS_DISPLAY ? SZ_16M : SZ_32M);
	if (class >> 16 == PCI_BASE_CLASS_DISPLAY) {
		set_bar(function, 2, SZ_256M);
		set_bar(function, 4, SZ_32M);
	}
	config[PCI_CAPABILITY_LIST] = EXPRESS;
	config[EXPRESS] = PCI_CAP_ID_EXP;
	config[EXPRESS + 1] = MARK;
	put16(config + EXPRESS + PCI_EXP_FLAGS, PCI_EXP_TYPE_ENDPOINT << 4 | 2);
	put32(config + EXPRESS + PCI_EXP_DEVCAP, PCI_EXP_DEVCAP_RBER | 1);
	put16(writable + EXPRESS + PCI_EXP_DEVCTL, 0x7fff);
	put32(config + EXPRESS + PCI_EXP_LNKCAP, 16 << 4 | speed);
	put16(config + EXPRESS + PCI_EXP_LNKSTA, 16 << 4 | speed);
	put32(config + EXPRESS + PCI_EXP_LNKCAP2, (2 << speed) - 2);
	put16(writable + EXPRESS + PCI_EXP_DEVCTL2, 0xffff);
	config[MARK] = PCI_CAP_ID_VNDR;
	memcpy(config + MARK + 3, SIGNATURE, sizeof(SIGNATURE));
}

static int vpd_field(u8 *at, const char *keyword, const char *content)
{
	int length = strlen(content);

	at[0] = keyword[0];
	at[1] = keyword[1];
	at[2] = length;
	memcpy(at + 3, content, length);
	return 3 + length;
}

/* Layout and checksum: PCI Local Bus specification 3.0, appendix I. */
static void set_vpd(struct function *function, const char *name, const char *content)
{
	u8 *vpd = function->vpd, sum = 0;
	int body, end, i;

	vpd[0] = 0x82;
	put16(vpd + 1, strlen(name));
	memcpy(vpd + 3, name, strlen(name));
	body = 3 + strlen(name);
	vpd[body] = 0x90;
	end = body + 3;
	end += vpd_field(vpd + end, "PN", "SIMULATED");
	end += vpd_field(vpd + end, "V3", content);
	end += vpd_field(vpd + end, "RV", " ");
	put16(vpd + body + 1, end - body - 3);
	vpd[end - 1] = 0;
	for (i = 0; i < end; i++)
		sum -= vpd[i];
	vpd[end - 1] = sum;
	vpd[end] = 0x78;
	function->config[EXPRESS + 1] = VPD;
	function->config[VPD] = PCI_CAP_ID_VPD;
	function->config[VPD + 1] = MARK;
	put16(function->writable + VPD + PCI_VPD_ADDR, 0xffff);
	put32(function->writable + VPD + PCI_VPD_DATA, ~0u);
}

void function_identify(struct function *function, const char *uuid, const char *name, const char *vpd)
{
	u8 *identity = function->config + MARK + 3 + sizeof(SIGNATURE);
	u8 *label = identity + sizeof(uuid_t);
	size_t room = function->config + PCI_CFG_SPACE_SIZE - label;
	uuid_t parsed;

	if (strncmp(uuid, "GPU-", 4) == 0 && uuid_parse(uuid + 4, &parsed) == 0)
		memcpy(identity, &parsed, sizeof(parsed));
	strscpy(label, name, room);
	function->config[MARK + 2] = label + strlen(label) + 1 - (function->config + MARK);
	if (strcmp(vpd, "-") != 0 && strlen(name) + strlen(vpd) < sizeof(function->vpd) - 32)
		set_vpd(function, name, vpd);
}
