/* The state of the simulated host around the library: loaded driver, faults, persistence mode, boots. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sim.h"

const char *host_path(char buffer[PATH_SIZE], const char *path) {
    const char *root = getenv("GPUPROV_SIM_ROOT");
    snprintf(buffer, PATH_SIZE, "%s%s", root ? root : "", path);
    return buffer;
}

static bool read_line(const char *path, char *line, int size) {
    char name[PATH_SIZE];
    FILE *file = fopen(host_path(name, path), "re");
    if (!file) return false;
    bool found = fgets(line, size, file) != NULL;
    fclose(file);
    if (found) line[strcspn(line, "\n")] = '\0';
    return found;
}

/* As the real NVML judges the loaded kernel module. Its version is a word of the line "NVRM version: ...". */
nvmlReturn_t host_driver(void) {
    char line[256], wanted[80];
    if (!read_line("/proc/driver/nvidia/version", line, sizeof line)) return NVML_ERROR_DRIVER_NOT_LOADED;
    snprintf(wanted, sizeof wanted, " %s ", own_version());
    return strstr(line, wanted) ? NVML_SUCCESS : NVML_ERROR_LIB_RM_VERSION_MISMATCH;
}

/* Whether the fault is planted, whose parameter is a GPU's index, on this GPU. */
bool host_fault(const char *name, unsigned index) {
    char path[128], line[32];
    snprintf(path, sizeof path, "/var/lib/gpuprov-sim/faults/%s", name);
    return read_line(path, line, sizeof line) && (unsigned)atoi(line) == index;
}

/* What a reset of the GPU ends: a file of the fault that is planted on it goes. */
void host_reset_ends(const char *name, unsigned index) {
    char path[128], file[PATH_SIZE];
    if (!host_fault(name, index)) return;
    snprintf(path, sizeof path, "/var/lib/gpuprov-sim/faults/%s", name);
    unlink(host_path(file, path));
}

/* Whether the fault gpu-reset-fails is on this GPU: until the host boots. */
bool host_gpu_stuck(unsigned index) {
    char name[PATH_SIZE];
    struct stat planted = {0}, booted = {0};
    if (!host_fault("gpu-reset-fails", index)) return false;
    (void)stat(host_path(name, "/var/lib/gpuprov-sim/faults/gpu-reset-fails"), &planted);
    (void)stat(host_path(name, "/run/gpuprov-sim/booted"), &booted);
    return planted.st_mtim.tv_sec >= booted.st_mtim.tv_sec;
}

bool host_gpu_lost(unsigned index) { return host_fault("gpu-lost", index); }

/* The fault nvlink-down takes the first NVLink of a GPU. */
bool host_link_down(unsigned index, unsigned link) { return link == 0 && host_fault("nvlink-down", index); }

/* Whether the process is a living persistence daemon: not another one with its number, nor one that nobody waited for. */
bool host_is_daemon(int pid) {
    char path[64], line[128] = "";
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *file = fopen(path, "re");
    if (!file) return false;
    bool found = fgets(line, sizeof line, file) && strstr(line, "(nvidia-persiste") && !strstr(line, ") Z");
    fclose(file);
    return found;
}

/* The state file holds the pid of the daemon that keeps the GPU, or 0: switched on for good by an NVML client. */
bool host_persistence(unsigned index) {
    char path[64], line[32];
    snprintf(path, sizeof path, "/run/gpuprov-sim/persistence/%u", index);
    if (!read_line(path, line, sizeof line)) return false;
    int pid = atoi(line);
    return pid == 0 || host_is_daemon(pid);
}

nvmlReturn_t host_set_persistence(unsigned index, bool on) {
    char path[64], name[PATH_SIZE];
    if (!host_is_root()) return NVML_ERROR_NO_PERMISSION;
    if (host_persistence(index) == on) return NVML_SUCCESS;
    snprintf(path, sizeof path, "/run/gpuprov-sim/persistence/%u", index);
    host_path(name, path);
    if (!on) return unlink(name) == 0 ? NVML_SUCCESS : NVML_ERROR_UNKNOWN;
    unlink(name);
    FILE *file = fopen(name, "we");
    if (!file) return NVML_ERROR_UNKNOWN;
    fputs("0\n", file);
    return fclose(file) == 0 ? NVML_SUCCESS : NVML_ERROR_UNKNOWN;
}

/* Differs from boot to boot. A container keeps its kernel's boot id, so the file that its boot makes counts too. */
void host_boot(char *buffer, size_t size) {
    char name[PATH_SIZE], kernel[64] = "";
    struct stat booted = {0};
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");
    if (file) {
        if (fgets(kernel, sizeof kernel, file)) kernel[strcspn(kernel, "\n")] = '\0';
        fclose(file);
    }
    (void)stat(host_path(name, "/run/gpuprov-sim/booted"), &booted);
    snprintf(buffer, size, "%s/%lld.%09ld", kernel, (long long)booted.st_mtim.tv_sec, booted.st_mtim.tv_nsec);
}

/* Differs from one loading of the kernel module to the next, too; a container loads none. */
void host_boot_marker(char *buffer, size_t size) {
    char name[PATH_SIZE], boot[96];
    struct stat module = {0};
    (void)stat(host_path(name, "/sys/module/nvidia"), &module); /* a new folder each time */
    host_boot(boot, sizeof boot);
    snprintf(buffer, size, "%s/%llu", boot, (unsigned long long)module.st_ino);
}

/* Whoever may write the state is who may change it: root. */
bool host_is_root(void) {
    char path[PATH_SIZE];
    return faccessat(AT_FDCWD, host_path(path, "/var/lib/gpuprov-sim"), W_OK, AT_EACCESS) == 0;
}
