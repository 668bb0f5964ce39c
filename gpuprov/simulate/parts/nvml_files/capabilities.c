/* What the kernel module shows of MIG instances, and the device files that go with them; made where a container has no module.
   https://docs.nvidia.com/datacenter/tesla/mig-user-guide/device-nodes-and-capabilities.html
   Minor numbers: https://github.com/NVIDIA/open-gpu-kernel-modules/blob/main/kernel-open/nvidia/nv-caps.c */
#define _XOPEN_SOURCE 700 /* mknod */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sim.h"

#define FOLDER "/proc/driver/nvidia/capabilities"
enum { FIRST_MINOR = 3, INSTANCES = 15, PER_INSTANCE = 1 + MAX_CI, MODE = 0444 };

static unsigned minor_of(unsigned gpu, unsigned gi, int ci) {
    return FIRST_MINOR + (gpu * INSTANCES + gi) * PER_INSTANCE + (unsigned)(ci - CAP_OF_GI);
}

void cap_path(char *buffer, size_t size, unsigned gpu, unsigned gi, int ci) {
    snprintf(buffer, size, "/dev/nvidia-caps/nvidia-cap%u", minor_of(gpu, gi, ci));
}

/* Another name of /dev/null, like all device files of a simulated container; a plain file where nobody may make devices. */
static void make_node(const char *path) {
    struct stat null;
    if (access(path, F_OK) == 0 || stat("/dev/null", &null) != 0) return;
    if (mknod(path, S_IFCHR | MODE, null.st_rdev) != 0) {
        int file = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, MODE);
        if (file >= 0) close(file);
    }
    chmod(path, MODE);
}

static void show(const char *folder, const char *node, unsigned minor) {
    char path[PATH_SIZE + 16];
    snprintf(path, sizeof path, "%s/access", folder);
    if (access(path, F_OK) != 0) {
        mkdir(folder, 0755);
        FILE *file = fopen(path, "we");
        if (!file) return;
        fprintf(file, "DeviceFileMinor: %u\nDeviceFileMode: %d\nDeviceFileModify: 1\n", minor, MODE);
        fclose(file);
        chmod(path, MODE);
    }
    make_node(node);
}

static void hide(const char *folder, const char *node) {
    char path[PATH_SIZE + 16];
    snprintf(path, sizeof path, "%s/access", folder);
    if (unlink(path) == 0) unlink(node);
    rmdir(folder);
}

static void one(unsigned gpu, unsigned gi, int ci, bool used) {
    char name[128], node[64], folder[PATH_SIZE], device[PATH_SIZE];
    if (ci == CAP_OF_GI)
        snprintf(name, sizeof name, FOLDER "/gpu%u/mig/gi%u", gpu, gi);
    else
        snprintf(name, sizeof name, FOLDER "/gpu%u/mig/gi%u/ci%d", gpu, gi, ci);
    cap_path(node, sizeof node, gpu, gi, ci);
    host_path(folder, name);
    host_path(device, node);
    if (used)
        show(folder, device, minor_of(gpu, gi, ci));
    else
        hide(folder, device);
}

void caps_show(const struct mig *mig) {
    char name[64], path[PATH_SIZE];
    snprintf(name, sizeof name, FOLDER "/gpu%u/mig", mig->gpu);
    if (access(host_path(path, name), W_OK) != 0) return;
    for (unsigned gi = 0; gi < INSTANCES; gi++) {
        const struct gpu_instance *instance = &mig->gi[gi];
        if (instance->used) one(mig->gpu, gi, CAP_OF_GI, true);
        for (int ci = 0; ci < MAX_CI; ci++) one(mig->gpu, gi, ci, instance->used && instance->ci[ci].used);
        if (!instance->used) one(mig->gpu, gi, CAP_OF_GI, false);
    }
}
