// SPDX-License-Identifier: MIT
/*
 * A stand-in for NVIDIA's kernel module of the same name, made by gpuprov for its simulation. It drives no hardware: it binds only
 * functions of gpuprov_sim_pci, has the same parameters and files in /proc/driver/nvidia, and is held by whoever has a device
 * file open. What it does not do: anything with a GPU.
 */
#define pr_fmt(fmt) "NVRM: " fmt

#include <linux/fs.h>
#include <linux/module.h>
#include <linux/pci.h>
#include <linux/proc_fs.h>
#include <linux/seq_file.h>
#include <linux/uaccess.h>
#include <linux/uuid.h>

#include "shared.h"
#include "stand-in.h"
#include "parameters.h"

#define MAJOR_NUMBER 195
enum { MODESET = 254, CONTROL = 255, MOST = 32 };

static const char SIGNATURE[12] = "gpuprov-sim";
static struct pci_dev *gpus[MOST];	/* by minor number */
static struct proc_dir_entry *folder, *gpu_folder;
static int switches;

/* Where the identity of a simulated function begins in its configuration space; 0 for any other, hence for all real ones. */
static int identity(struct pci_dev *device)
{
	int where = pci_find_capability(device, PCI_CAP_ID_VNDR), i;
	u8 byte;

	for (i = 0; where && i < sizeof(SIGNATURE); i++)
		if (pci_read_config_byte(device, where + 3 + i, &byte) || byte != SIGNATURE[i])
			return 0;
	return where ? where + 3 + sizeof(SIGNATURE) : 0;
}

static int show_information(struct seq_file *out, void *unused)
{
	struct pci_dev *device = out->private;
	int where = identity(device), minor, i;
	u8 raw[16], letter;

	for (minor = 0; minor < MOST && gpus[minor] != device; minor++)
		;
	seq_puts(out, "Model: \t\t ");
	for (i = 16; where && where + i < PCI_CFG_SPACE_SIZE; i++) {
		if (pci_read_config_byte(device, where + i, &letter) || !letter)
			break;
		seq_putc(out, letter);
	}
	seq_printf(out, "\nIRQ:   \t\t %d\n", device->irq);
	for (i = 0; i < 16; i++)
		raw[i] = 0;
	for (i = 0; where && i < 16; i++)
		pci_read_config_byte(device, where + i, raw + i);
	seq_printf(out, "GPU UUID: \t GPU-%pUb\n", raw);
	seq_puts(out, "Video BIOS: \t ??.??.??.??.??\nBus Type: \t PCIe\nDMA Size: \t 47 bits\nDMA Mask: \t 0x7fffffffffff\n");
	seq_printf(out, "Bus Location: \t %s\nDevice Minor: \t %d\n", pci_name(device), minor);
	seq_puts(out, "GPU Firmware: \t " NV_VERSION_STRING "\nGPU Excluded:\t No\n");
	return 0;
}

/* The fault version-mismatch of the simulation: a file with the version to show instead. */
static void shown_version(char *buffer, size_t size)
{
	struct file *file = filp_open("/var/lib/gpuprov-sim/faults/version-mismatch", O_RDONLY, 0);
	loff_t start = 0;
	ssize_t length;

	strscpy(buffer, NV_VERSION_STRING, size);
	if (IS_ERR(file))
		return;
	length = kernel_read(file, buffer, size - 1, &start);
	buffer[length > 0 ? length : 0] = 0;
	strim(buffer);
	if (!*buffer)
		strscpy(buffer, NV_OTHER_VERSION, size);
	filp_close(file, NULL);
}

static int show_version(struct seq_file *out, void *unused)
{
	char version[32];

	shown_version(version, sizeof(version));
	seq_printf(out, "NVRM version: " NV_VERSION_LINE "\n", version);
	seq_puts(out, "GCC version:  gcc version " __VERSION__ " (gpuprov stand-in)\n");
	return 0;
}

static int show_parameters(struct seq_file *out, void *unused)
{
	print_parameters(out);
	return 0;
}

static int probe(struct pci_dev *device, const struct pci_device_id *id)
{
	struct proc_dir_entry *entry;
	int minor;

	if (!identity(device))
		return -ENODEV;
	for (minor = 0; minor < MOST && gpus[minor]; minor++)
		;
	if (minor == MOST)
		return -ENOSPC;
	gpus[minor] = device;
	entry = proc_mkdir(pci_name(device), gpu_folder);
	if (entry)
		proc_create_single_data("information", 0444, entry, show_information, device);
	return 0;
}

static void remove(struct pci_dev *device)
{
	int minor;

	for (minor = 0; minor < MOST; minor++)
		if (gpus[minor] == device)
			gpus[minor] = NULL;
	remove_proc_subtree(pci_name(device), gpu_folder);
}

static int probe_switch(struct pci_dev *device, const struct pci_device_id *id)
{
	if (!identity(device))
		return -ENODEV;
	switches++;
	return 0;
}

static const struct pci_device_id gpu_ids[] = {
	{ PCI_DEVICE(PCI_VENDOR_ID_NVIDIA, PCI_ANY_ID), .class = PCI_CLASS_DISPLAY_VGA << 8, .class_mask = ~0 },
	{ PCI_DEVICE(PCI_VENDOR_ID_NVIDIA, PCI_ANY_ID), .class = PCI_CLASS_DISPLAY_3D << 8, .class_mask = ~0 },
	{ }
};
static const struct pci_device_id switch_ids[] = {
	{ PCI_DEVICE(PCI_VENDOR_ID_NVIDIA, PCI_ANY_ID), .class = PCI_CLASS_BRIDGE_OTHER << 8, .class_mask = ~0 },
	{ }
};
MODULE_DEVICE_TABLE(pci, gpu_ids);
MODULE_DEVICE_TABLE(pci, switch_ids);
static struct pci_driver gpu_driver = { .name = "nvidia", .id_table = gpu_ids, .probe = probe, .remove = remove };
static struct pci_driver switch_driver = { .name = "nvidia-nvswitch", .id_table = switch_ids, .probe = probe_switch };

static int open(struct inode *inode, struct file *file)
{
	unsigned int minor = iminor(inode);
	u16 vendor;

	if (minor == CONTROL)
		return 0;
	if (minor >= MOST || !gpus[minor])
		return -ENODEV;
	if (pci_read_config_word(gpus[minor], PCI_VENDOR_ID, &vendor) || vendor != PCI_VENDOR_ID_NVIDIA)
		return -EIO;
	return 0;
}

/* nvidia-persistenced asks for the GPU's NUMA memory, NV_ESC_NUMA_INFO, and lets the GPU go again without an answer: none here. */
static long control(struct file *file, unsigned int request, unsigned long argument)
{
	if (_IOC_TYPE(request) != 'F' || _IOC_NR(request) != 215)
		return -ENOTTY;
	return clear_user((void __user *)argument, _IOC_SIZE(request)) ? -EFAULT : 0;
}

static const struct file_operations operations = { .owner = THIS_MODULE, .open = open, .unlocked_ioctl = control };

/* The other modules of the driver call it; so they need this one, and hold it. */
int nvidia_get_rm_ops(void)
{
	return 0;
}
EXPORT_SYMBOL(nvidia_get_rm_ops);

static int present(void)
{
	struct pci_dev *device = NULL;
	int count = 0;

	while ((device = pci_get_device(PCI_VENDOR_ID_NVIDIA, PCI_ANY_ID, device)))
		count += device->class >> 16 == PCI_BASE_CLASS_DISPLAY && identity(device);
	return count;
}

static int bound(void)
{
	int minor, count = 0;

	for (minor = 0; minor < MOST; minor++)
		count += gpus[minor] != NULL;
	return count;
}

static void clean(void)
{
	__unregister_chrdev(MAJOR_NUMBER, CONTROL, 1, NV_CONTROL_NAME);
	__unregister_chrdev(MAJOR_NUMBER, 0, MODESET, NV_CHRDEV_NAME);
	proc_remove(folder);
}

static void leave(void)
{
	pci_unregister_driver(&switch_driver);
	pci_unregister_driver(&gpu_driver);
	clean();
}

static int drive(void)
{
	int status = pci_register_driver(&gpu_driver);

	if (status)
		return status;
	status = pci_register_driver(&switch_driver);
	if (status)
		pci_unregister_driver(&gpu_driver);
	return status;
}

static int enter(void)
{
	int status = __register_chrdev(MAJOR_NUMBER, 0, MODESET, NV_CHRDEV_NAME, &operations);

	if (status < 0)
		return status;
	status = __register_chrdev(MAJOR_NUMBER, CONTROL, 1, NV_CONTROL_NAME, &operations);
	if (status < 0) {
		__unregister_chrdev(MAJOR_NUMBER, 0, MODESET, NV_CHRDEV_NAME);
		return status;
	}
	folder = proc_mkdir("driver/nvidia", NULL);
	gpu_folder = proc_mkdir("gpus", folder);
	proc_create_single("version", 0444, folder, show_version);
	proc_create_single("params", 0444, folder, show_parameters);
	status = drive();
	if (status)
		clean();
	return status;
}

static int __init begin(void)
{
	int count = present(), status;

	if (!count) {
		pr_err("No NVIDIA GPU found.\n");
		return -ENODEV;
	}
	status = enter();
	if (status)
		return status;
	if (bound() != count)
		pr_err("The NVIDIA probe routine was not called for %d device(s).\n"
		       "NVRM: This can occur when a driver such as: \n"
		       "NVRM: nouveau, rivafb, nvidiafb or rivatv \n"
		       "NVRM: was loaded and obtained ownership of the NVIDIA device(s).\n", count - bound());
	if (!bound() && !switches) {
		pr_err("No NVIDIA devices probed.\n");
		leave();
		return -ENODEV;
	}
	pr_info("loading " NV_VERSION_LINE " (gpuprov stand-in: drives no hardware)\n", NV_VERSION_STRING);
	return 0;
}

static void __exit end(void)
{
	leave();
}

module_init(begin);
module_exit(end);
MODULE_LICENSE(NV_LICENSE);
MODULE_VERSION(NV_VERSION_STRING);
MODULE_DESCRIPTION("gpuprov stand-in for the NVIDIA driver " NV_VERSION_STRING ": drives no hardware");
MODULE_INFO(supported, "external");
MODULE_ALIAS_CHARDEV_MAJOR(MAJOR_NUMBER);
MODULE_FIRMWARE("nvidia/" NV_VERSION_STRING "/gsp_tu10x.bin");
MODULE_FIRMWARE("nvidia/" NV_VERSION_STRING "/gsp_ga10x.bin");
