/* SPDX-License-Identifier: MIT */
/* Parameters of the stand-in: taken as NVreg_NAME, shown by /proc/driver/nvidia/params; without any effect. */
#ifndef GPUPROV_PARAMETERS_H
#define GPUPROV_PARAMETERS_H

#include <linux/module.h>
#include <linux/seq_file.h>

/* NUMBERS(X) and TEXTS(X) call X(taken as, shown as, default) */
#include "parameter-table.h"

#define DECLARE_NUMBER(taken, shown, value)       \
	static int NVreg_##taken = (int)value##u;   \
	module_param(NVreg_##taken, int, 0);
#define DECLARE_TEXT(taken, shown, value)    \
	static char *NVreg_##taken = value;   \
	module_param(NVreg_##taken, charp, 0);

NUMBERS(DECLARE_NUMBER)
TEXTS(DECLARE_TEXT)

#define PRINT_NUMBER(taken, shown, value) seq_printf(out, #shown ": %u\n", NVreg_##taken);
#define PRINT_TEXT(taken, shown, value) seq_printf(out, #shown ": \"%s\"\n", NVreg_##taken ? NVreg_##taken : "");

static inline void print_parameters(struct seq_file *out)
{
	NUMBERS(PRINT_NUMBER)
	TEXTS(PRINT_TEXT)
}

#endif
