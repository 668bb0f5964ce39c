/* A stand-in libcuda.so.1 of gpuprov's tests. SAY names a file with lines DEVICE FUNCTION CODE: what a function answers to a
 * program that sees this device; -1: it crashes, -2: it hangs. `spoil`: a copy comes back changed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static unsigned char *memory;

static int say(const char *function)
{
	const char *own = getenv("CUDA_VISIBLE_DEVICES");
	char device[128], name[64];
	int code;
	FILE *file = fopen(SAY, "r");

	if (!file)
		return 0;
	while (fscanf(file, "%127s %63s %d", device, name, &code) == 3) {
		if (!own || strcmp(device, own) || strcmp(name, function))
			continue;
		if (code == -1)
			abort();
		if (code == -2)
			sleep(600);
		fclose(file);
		return code;
	}
	fclose(file);
	return 0;
}

int cuInit(unsigned flags) { (void)flags; return say("cuInit"); }
int cuDeviceGet(int *device, int number) { *device = number; return say("cuDeviceGet"); }
int cuDevicePrimaryCtxRetain(void **context, int device) { (void)device; *context = &memory; return say("cuDevicePrimaryCtxRetain"); }
int cuCtxSetCurrent(void *context) { return context == &memory ? say("cuCtxSetCurrent") : 201; }
int cuMemAlloc_v2(unsigned long long *place, size_t size) { memory = malloc(size); *place = 4096; return say("cuMemAlloc"); }
int cuMemcpyHtoD_v2(unsigned long long place, const void *from, size_t size)
{
	memcpy(memory, from, size);
	return place == 4096 ? say("cuMemcpyHtoD") : 1;
}
int cuMemcpyDtoH_v2(void *to, unsigned long long place, size_t size)
{
	memcpy(to, memory, size);
	if (say("spoil"))
		((unsigned char *)to)[size - 1] ^= 1;
	return place == 4096 ? say("cuMemcpyDtoH") : 1;
}
