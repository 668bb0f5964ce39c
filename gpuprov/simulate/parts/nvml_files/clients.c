/* Processes that use a GPU or a MIG device, told by the device files that they have open, as CUDA has them. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sim.h"

static bool holds(const char *pid, const char *device) {
    char folder[64], link[PATH_SIZE], target[PATH_SIZE];
    bool found = false;
    snprintf(folder, sizeof folder, "/proc/%.16s/fd", pid);
    DIR *files = opendir(folder);
    if (!files) return false;
    for (struct dirent *entry; !found && (entry = readdir(files));) {
        snprintf(link, sizeof link, "%.64s/%.32s", folder, entry->d_name);
        ssize_t length = readlink(link, target, sizeof target - 1);
        if (length <= 0) continue;
        target[length] = '\0';
        found = !strcmp(target, device);
    }
    closedir(files);
    return found && !host_is_daemon(atoi(pid)); /* nvidia-smi asks the daemon to let go before it resets a GPU */
}

unsigned clients_of(const char *device, unsigned pids[], unsigned room) {
    char path[PATH_SIZE];
    unsigned count = 0;
    host_path(path, device);
    DIR *processes = opendir("/proc");
    if (!processes) return 0;
    for (struct dirent *entry; (entry = readdir(processes));) {
        int pid = atoi(entry->d_name);
        if (pid <= 0 || pid == getpid() || !holds(entry->d_name, path)) continue;
        if (count < room) pids[count] = (unsigned)pid;
        count++;
    }
    closedir(processes);
    return count;
}

bool host_gpu_has_clients(unsigned index) {
    char device[64];
    snprintf(device, sizeof device, "/dev/nvidia%u", index);
    return clients_of(device, NULL, 0) > 0;
}

bool ci_has_clients(unsigned gpu, unsigned gi, unsigned ci) {
    char device[64];
    cap_path(device, sizeof device, gpu, gi, (int)ci);
    return clients_of(device, NULL, 0) > 0;
}

bool gi_has_clients(unsigned gpu, unsigned gi) {
    char device[64];
    cap_path(device, sizeof device, gpu, gi, CAP_OF_GI);
    return clients_of(device, NULL, 0) > 0;
}
