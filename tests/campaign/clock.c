/* Preloaded (ld.so(8)): the clock of a program that starts is OFF seconds off. No call but the kernel's own, which sshd's sandbox allows:
   libfaketime's semaphore made the sandbox kill sshd. */
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t clock, struct timespec *now)
{
	int failed = syscall(SYS_clock_gettime, clock, now);
	if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
		now->tv_sec += (OFF);
	return failed;
}

int timespec_get(struct timespec *now, int base)
{
	return base == TIME_UTC && !clock_gettime(CLOCK_REALTIME, now) ? base : 0;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
	int failed = syscall(SYS_gettimeofday, now, zone);
	if (!failed && now)
		now->tv_sec += (OFF);
	return failed;
}

time_t time(time_t *kept)
{
	struct timespec now;
	clock_gettime(CLOCK_REALTIME, &now);
	if (kept)
		*kept = now.tv_sec;
	return now.tv_sec;
}
