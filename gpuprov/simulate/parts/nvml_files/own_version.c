/* The driver version that this library stands in for is in its own file name: libnvidia-ml.so.550.163.01. */
#define _GNU_SOURCE /* dladdr; with it a newer glibc binds atoi and its kind to a symbol that the host's glibc may not have */
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim.h"

static char version[64];

const char *own_version(void) {
    char path[PATH_MAX];
    Dl_info here;
    if (*version || !dladdr(&version, &here) || !realpath(here.dli_fname, path)) return version;
    const char *suffix = strstr(path, ".so.");
    if (suffix) snprintf(version, sizeof version, "%s", suffix + strlen(".so."));
    return version;
}

unsigned own_branch(void) {
    unsigned branch = 0;
    for (const char *digit = own_version(); *digit >= '0' && *digit <= '9'; digit++) branch = 10 * branch + (unsigned)(*digit - '0');
    return branch;
}
