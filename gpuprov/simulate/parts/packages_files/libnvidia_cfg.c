/*
 * A stand-in for libnvidia-cfg.so.1, made by gpuprov for simulated hosts: just what nvidia-persistenced calls.
 * https://github.com/NVIDIA/nvidia-persistenced (nvidia-cfg.h)
 *
 * A GPU that is open here has persistence mode: its file in /run/gpuprov-sim/persistence, named by the GPU's index,
 * holds the process that has it open.
 *
 * A container has device files, but no driver behind them. There nvidia-persistenced is started with this library preloaded,
 * so that what it asks the kernel itself gets an answer (nvidia-numa.c): no GPU is on the list of those whose memory is a NUMA
 * node from the start, and no memory of this GPU is one.
 */
#define _DEFAULT_SOURCE /* not GNU: with it a newer glibc binds sscanf to a symbol that the host's glibc may not have */
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define TABLE "/etc/gpuprov-sim/devices"
#define LOADED "/proc/driver/nvidia/version"
#define STATE "/run/gpuprov-sim/persistence"
#define MOST 64
#ifndef RTLD_NEXT
#define RTLD_NEXT ((void *)-1l)
#endif

#define BOUND "/sys/bus/pci/drivers/nvidia/"
#define NUMA_INFO 215 /* NV_ESC_NUMA_INFO */

typedef struct { int domain, bus, slot, function; } pci_device;
typedef struct { int index, file; } open_device;

const char gpuprov_stand_in[] = "libnvidia-cfg: a gpuprov stand-in";

static int gpus(pci_device *found, int *indexes)
{
	char line[512], role[32];
	int count = 0, index;
	unsigned domain, bus, slot, function;
	FILE *table;

	if (access(LOADED, R_OK) != 0 || (table = fopen(TABLE, "re")) == NULL)
		return 0;
	while (count < MOST && fgets(line, sizeof line, table) != NULL) {
		if (sscanf(line, "%31s %d %x:%x:%x.%x", role, &index, &domain, &bus, &slot, &function) == 6 &&
		    strcmp(role, "gpu") == 0) {
			found[count] = (pci_device){(int)domain, (int)bus, (int)slot, (int)function};
			indexes[count++] = index;
		}
	}
	fclose(table);
	return count;
}

int nvCfgGetPciDevices(int *count, pci_device **devices)
{
	int indexes[MOST];

	*devices = calloc(MOST, sizeof **devices);
	*count = *devices != NULL ? gpus(*devices, indexes) : 0;
	return *count > 0;
}

int nvCfgOpenPciDevice(int domain, int bus, int slot, int function, void **handle)
{
	pci_device known[MOST];
	int indexes[MOST], count = gpus(known, indexes), file, i;
	char path[128];
	open_device *device;
	FILE *state;

	for (i = 0; i < count; i++) {
		if (known[i].domain != domain || known[i].bus != bus || known[i].slot != slot || known[i].function != function)
			continue;
		snprintf(path, sizeof path, "/dev/nvidia%d", indexes[i]);
		if ((file = open(path, O_RDWR | O_CLOEXEC)) < 0 || (device = malloc(sizeof *device)) == NULL)
			return 0;
		*device = (open_device){indexes[i], file};
		snprintf(path, sizeof path, STATE "/%d", indexes[i]);
		unlink(path);
		if ((state = fopen(path, "we")) != NULL) {
			fprintf(state, "%d\n", (int)getpid());
			fclose(state);
		}
		*handle = device;
		return 1;
	}
	return 0;
}

int nvCfgCloseDevice(void *handle)
{
	open_device *device = handle;
	char path[128];

	snprintf(path, sizeof path, STATE "/%d", device->index);
	unlink(path);
	close(device->file);
	free(device);
	return 1;
}

/* These two return an NV_STATUS, where 0 is success. */
int nvCfgEnableUVMPersistence(void *handle)
{
	return handle == NULL;
}

int nvCfgDisableUVMPersistence(void *handle)
{
	return handle == NULL;
}

int ioctl(int file, unsigned long request, ...)
{
	va_list arguments;
	void *argument;

	va_start(arguments, request);
	argument = va_arg(arguments, void *);
	va_end(arguments);
	if (_IOC_TYPE(request) == 'F' && _IOC_NR(request) == NUMA_INFO) {
		memset(argument, 0, _IOC_SIZE(request));
		return 0;
	}
	return (int)syscall(SYS_ioctl, file, request, argument);
}

DIR *opendir(const char *path)
{
	DIR *(*next)(const char *) = (DIR *(*)(const char *))dlsym(RTLD_NEXT, "opendir");
	DIR *found = next(path);

	/* A folder without links, where the driver counts as loaded. */
	if (found == NULL && strcmp(path, BOUND) == 0 && access(LOADED, R_OK) == 0)
		found = next("/sys/bus/pci/drivers");
	return found;
}
