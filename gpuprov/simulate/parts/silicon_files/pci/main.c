// SPDX-License-Identifier: GPL-2.0
/*
 * gpuprov simulation: PCI functions that exist in memory only. Each function is alone on a root bus of its own, with an
 * emulated configuration space and BARs in an address range that nothing decodes. There is no hardware behind any of them.
 *
 * /sys/module/gpuprov_sim_pci/parameters:
 *   devices       write one line of the table of gpuprov.simulate.devices (tab-separated) to add a function
 *   lost          addresses of functions that fell off the bus: their configuration space reads as ones
 *   bind_nouveau  whether nouveau binds simulated GPUs. Its probe needs registers to read, so it is skipped and reported as done.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/io.h>
#include <linux/module.h>
#include <linux/pci.h>
#include <linux/slab.h>

#include "config_space.h"
#include "nouveau.h"

#define WINDOW SZ_512M

struct root {
	struct list_head list;
	struct pci_sysdata sysdata;
	struct function function;
	struct resource memory, numbers;
	struct pci_bus *bus;
	char address[16];
};

static LIST_HEAD(roots);
static DEFINE_MUTEX(lock);
static unsigned int windows;

static struct function *function_of(struct pci_bus *bus, unsigned int devfn)
{
	return devfn ? NULL : &container_of(bus->sysdata, struct root, sysdata)->function;
}

static int config_read(struct pci_bus *bus, unsigned int devfn, int where, int size, u32 *value)
{
	struct function *function = function_of(bus, devfn);

	*value = ~0u >> (32 - 8 * size);
	if (!function)
		return PCIBIOS_DEVICE_NOT_FOUND;
	if (!function->lost)
		*value = function_read(function, where, size);
	return PCIBIOS_SUCCESSFUL;
}

static int config_write(struct pci_bus *bus, unsigned int devfn, int where, int size, u32 value)
{
	struct function *function = function_of(bus, devfn);

	if (!function)
		return PCIBIOS_DEVICE_NOT_FOUND;
	if (!function->lost)
		function_write(function, where, size, value);
	return PCIBIOS_SUCCESSFUL;
}

static struct pci_ops operations = { .read = config_read, .write = config_write };

static bool is_ours(struct pci_dev *device)
{
	return device->bus->ops == &operations;
}

static int attach(struct root *root, unsigned int domain, unsigned int number, int node)
{
	/* A quarter of what the processor can address: above all memory of a machine of ordinary size. */
	u64 base = (1ULL << (boot_cpu_data.x86_phys_bits - 2)) + (u64)WINDOW * windows;
	struct pci_dev *device;
	LIST_HEAD(resources);

	root->sysdata.domain = domain;
	root->sysdata.node = NUMA_NO_NODE;
	root->numbers = (struct resource)DEFINE_RES_NAMED(number, 1, "gpuprov_sim_pci", IORESOURCE_BUS);
	root->memory = (struct resource)DEFINE_RES_NAMED(base, WINDOW, "gpuprov_sim_pci",
							 IORESOURCE_MEM | IORESOURCE_PREFETCH | IORESOURCE_MEM_64);
	pci_add_resource(&resources, &root->numbers);
	if (request_resource(&iomem_resource, &root->memory) == 0) {
		pci_add_resource(&resources, &root->memory);
		windows++;
	} else {
		pr_warn("%s: %pR is taken, BARs stay unassigned\n", root->address, &root->memory);
		root->memory.parent = NULL;
	}
	pci_lock_rescan_remove();
	root->bus = pci_scan_root_bus(NULL, number, &operations, &root->sysdata, &resources);
	if (root->bus) {
		pci_bus_assign_resources(root->bus);
		list_for_each_entry(device, &root->bus->devices, bus_list)
			if (node >= 0 && node < MAX_NUMNODES && node_online(node))
				set_dev_node(&device->dev, node);
		pci_bus_add_devices(root->bus);
	}
	pci_unlock_rescan_remove();
	if (root->bus)
		return 0;
	pci_free_resource_list(&resources);
	if (root->memory.parent)
		release_resource(&root->memory);
	return -ENODEV;
}

static int parse(struct root *root, char *line)
{
	unsigned int domain, number, slot, vendor, device, sub_vendor, sub_device, class;
	char *field[10];
	int i, node;

	for (i = 0; i < ARRAY_SIZE(field); i++)
		if (!(field[i] = strsep(&line, "\t")))
			return -EINVAL;
	if (sscanf(field[2], "%x:%x:%x.0", &domain, &number, &slot) != 3 || domain == 0 || number > 255 || slot != 0 ||
	    sscanf(field[3], "%x:%x", &vendor, &device) != 2 ||
	    sscanf(field[4], "%x:%x", &sub_vendor, &sub_device) != 2 ||
	    kstrtouint(field[5], 16, &class) || kstrtoint(field[6], 10, &node))
		return -EINVAL;
	strscpy(root->address, field[2], sizeof(root->address));
	function_init(&root->function, vendor, device, sub_vendor, sub_device, class);
	function_identify(&root->function, field[8], field[7], field[9]);
	return attach(root, domain, number, node);
}

static int add(const char *value, const struct kernel_param *parameter)
{
	struct root *root, *other;
	char *line = kstrdup(value, GFP_KERNEL);
	int status;

	if (!line)
		return -ENOMEM;
	root = kzalloc(sizeof(*root), GFP_KERNEL);
	if (!root) {
		kfree(line);
		return -ENOMEM;
	}
	mutex_lock(&lock);
	status = 0;
	list_for_each_entry(other, &roots, list)
		if (strstr(value, other->address))
			status = -EEXIST;
	if (!status)
		status = parse(root, strim(line));
	if (status)
		kfree(root);
	else
		list_add_tail(&root->list, &roots);
	mutex_unlock(&lock);
	kfree(line);
	return status == -EEXIST ? 0 : status;
}

static int show(char *buffer, bool only_lost)
{
	struct root *root;
	int length = 0;

	mutex_lock(&lock);
	list_for_each_entry(root, &roots, list)
		if (!only_lost || root->function.lost)
			length += scnprintf(buffer + length, PAGE_SIZE - length, "%s\n", root->address);
	mutex_unlock(&lock);
	return length;
}

static int show_all(char *buffer, const struct kernel_param *parameter)
{
	return show(buffer, false);
}

static int show_lost(char *buffer, const struct kernel_param *parameter)
{
	return show(buffer, true);
}

static int lose(const char *value, const struct kernel_param *parameter)
{
	struct root *root;

	mutex_lock(&lock);
	list_for_each_entry(root, &roots, list)
		root->function.lost = strstr(value, root->address) != NULL;
	mutex_unlock(&lock);
	return 0;
}

static const struct kernel_param_ops devices_ops = { .set = add, .get = show_all };
static const struct kernel_param_ops lost_ops = { .set = lose, .get = show_lost };
module_param_cb(devices, &devices_ops, NULL, 0644);
MODULE_PARM_DESC(devices, "write a line of the table of devices to add a function; reads as addresses");
module_param_cb(lost, &lost_ops, NULL, 0644);
MODULE_PARM_DESC(lost, "addresses of functions that fell off the bus");

static int __init begin(void)
{
	return nouveau_watch(is_ours);
}

static void __exit end(void)
{
	struct root *root, *next;

	pci_lock_rescan_remove();
	list_for_each_entry_safe(root, next, &roots, list) {
		pci_stop_root_bus(root->bus);
		pci_remove_root_bus(root->bus);
		if (root->memory.parent)
			release_resource(&root->memory);
		kfree(root);
	}
	pci_unlock_rescan_remove();
	nouveau_unwatch();
}

module_init(begin);
module_exit(end);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("gpuprov simulation: PCI functions without hardware");
