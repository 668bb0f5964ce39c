// SPDX-License-Identifier: GPL-2.0
/*
 * gpuprov simulation: lets the real nouveau module bind simulated GPUs.
 *
 * nouveau reads the chip's registers when it probes a GPU, and these GPUs have none. So its two callbacks are answered here, for
 * simulated functions only: probe says "done", remove does nothing. Module, udev rule, alias, blacklist and sysfs links are real.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/kprobes.h>
#include <linux/module.h>

#include "nouveau.h"

static bool bind_nouveau = true;
module_param(bind_nouveau, bool, 0644);
MODULE_PARM_DESC(bind_nouveau, "whether nouveau binds simulated GPUs that it is loaded for");

static bool (*is_simulated)(struct pci_dev *);

static notrace int nothing(void)
{
	return 0;
}

static int skip(struct pt_regs *regs)
{
	regs->ip = (unsigned long)nothing;
	return 1;
}

static int __kprobes at_probe(struct kprobe *probe, struct pt_regs *regs)
{
	return bind_nouveau && is_simulated((struct pci_dev *)regs->di) ? skip(regs) : 0;
}

/* Only a device whose probe was skipped has no driver data. */
static int __kprobes at_remove(struct kprobe *probe, struct pt_regs *regs)
{
	struct pci_dev *device = (struct pci_dev *)regs->di;

	return is_simulated(device) && !pci_get_drvdata(device) ? skip(regs) : 0;
}

static struct kprobe probes[2];
static bool armed;

static void disarm(void)
{
	if (armed) {
		unregister_kprobe(&probes[0]);
		unregister_kprobe(&probes[1]);
	}
	armed = false;
}

static int arm(void)
{
	int status;

	memset(probes, 0, sizeof(probes));
	probes[0].symbol_name = "nouveau_drm_probe";
	probes[0].pre_handler = at_probe;
	probes[1].symbol_name = "nouveau_drm_remove";
	probes[1].pre_handler = at_remove;
	status = register_kprobe(&probes[1]);
	if (!status) {
		status = register_kprobe(&probes[0]);
		if (status)
			unregister_kprobe(&probes[1]);
	}
	armed = !status;
	return status;
}

static int watched(struct notifier_block *block, unsigned long state, void *data)
{
	struct module *module = data;

	if (strcmp(module->name, "nouveau") != 0)
		return NOTIFY_DONE;
	if (state == MODULE_STATE_COMING && arm())
		pr_warn("nouveau cannot bind simulated GPUs\n");
	/* MODULE_STATE_GOING is told after the module's exit function, which calls remove, has run. */
	if (state == MODULE_STATE_GOING)
		disarm();
	return NOTIFY_DONE;
}

static struct notifier_block watch = { .notifier_call = watched };

int nouveau_watch(bool (*simulated)(struct pci_dev *))
{
	is_simulated = simulated;
	arm(); /* for a nouveau that is loaded already; without one it fails, and the notifier is told when it comes */
	return register_module_notifier(&watch);
}

void nouveau_unwatch(void)
{
	unregister_module_notifier(&watch);
	disarm();
}
