/* Compute instance profiles of a GPU instance: 1c, 2c, 3c, 4c, 7c as far as its compute slices go. */
#include <stdio.h>
#include <string.h>

#include "sim.h"

/* By NVML_COMPUTE_INSTANCE_PROFILE_*: 1, 2, 3, 4, 7, 8, 6 slices, and 1 slice again (revision 1). */
unsigned ci_slices(unsigned ci_profile) {
    static const unsigned slices[] = {1, 2, 3, 4, 7, 8, 6};
    return ci_profile < sizeof slices / sizeof *slices ? slices[ci_profile] : 0;
}

/* How many such compute instances an empty GPU instance can hold; 0: it has no such profile. */
unsigned ci_count(const struct profile *gi, unsigned ci_profile) {
    unsigned slices = ci_slices(ci_profile);
    if (!slices || slices > gi->slices) return 0;
    return gi->slices / slices;
}

bool ci_fits(const struct gpu_instance *gi, const struct profile *profile, unsigned start, unsigned size) {
    if (start % size || start + size > profile->slices) return false;
    for (unsigned id = 0; id < MAX_CI; id++) {
        const struct compute_instance *held = &gi->ci[id];
        if (held->used && start < held->start + held->size && held->start < start + size) return false;
    }
    return true;
}

bool ci_choose(const struct gpu_instance *gi, const struct profile *profile, unsigned ci_profile, unsigned *start) {
    unsigned size = ci_slices(ci_profile), count = ci_count(profile, ci_profile);
    for (unsigned i = 0; i < count; i++) {
        *start = i * size;
        if (ci_fits(gi, profile, *start, size)) return true;
    }
    return false;
}

/* "3g.40gb" where it has all compute slices of its GPU instance, else "1c.3g.40gb". */
void ci_name(char *buffer, size_t size, const struct profile *gi, unsigned ci_profile) {
    unsigned slices = ci_slices(ci_profile);
    if (slices == gi->slices)
        snprintf(buffer, size, "%s", gi->name);
    else
        snprintf(buffer, size, "%uc.%s", slices, gi->name);
}
