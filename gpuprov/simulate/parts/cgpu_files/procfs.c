/*
 * Of a gpuprov simulated host: whoever asks for /proc/cgpu_km is shown /run/gpuprov-sim/cgpu_km.
 *
 * A container has no kernel of its own that could have the folder in its /proc, so programs of the C library are told another
 * path. They are plain files: what is written is kept as it is, whatever it is. The real module looks at each value.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

static const char FROM[] = "/proc/cgpu_km";
static const char TO[] = "/run/gpuprov-sim/cgpu_km";

#define SHOWN char other[PATH_MAX]; const char *to = shown(path, other)
#define REAL(name) __typeof__(&name) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

static const char *shown(const char *path, char *other)
{
	size_t length = sizeof(FROM) - 1;

	if (!path || strncmp(path, FROM, length) != 0 || (path[length] && path[length] != '/'))
		return path;
	if (snprintf(other, PATH_MAX, "%s%s", TO, path + length) >= PATH_MAX)
		return path;
	return other;
}

static mode_t mode_of(int flags, va_list rest)
{
	return flags & (O_CREAT | __O_TMPFILE) ? va_arg(rest, mode_t) : 0;
}

#define OPEN(name) \
	int name(const char *path, int flags, ...) \
	{ \
		SHOWN; \
		REAL(name); \
		va_list rest; \
		va_start(rest, flags); \
		mode_t mode = mode_of(flags, rest); \
		va_end(rest); \
		return real(to, flags, mode); \
	}
OPEN(open)
OPEN(open64)

#define OPENAT(name) \
	int name(int folder, const char *path, int flags, ...) \
	{ \
		SHOWN; \
		REAL(name); \
		va_list rest; \
		va_start(rest, flags); \
		mode_t mode = mode_of(flags, rest); \
		va_end(rest); \
		return real(folder, to, flags, mode); \
	}
OPENAT(openat)
OPENAT(openat64)

FILE *fopen(const char *path, const char *mode)
{
	SHOWN;
	REAL(fopen);
	return real(to, mode);
}

FILE *fopen64(const char *path, const char *mode)
{
	SHOWN;
	REAL(fopen64);
	return real(to, mode);
}

DIR *opendir(const char *path)
{
	SHOWN;
	REAL(opendir);
	return real(to);
}

int access(const char *path, int mode)
{
	SHOWN;
	REAL(access);
	return real(to, mode);
}

int faccessat(int folder, const char *path, int mode, int flags)
{
	SHOWN;
	REAL(faccessat);
	return real(folder, to, mode, flags);
}

#define STAT(name, kind) \
	int name(const char *path, struct kind *found) \
	{ \
		SHOWN; \
		REAL(name); \
		return real(to, found); \
	}
STAT(stat, stat)
STAT(lstat, stat)
STAT(stat64, stat64)
STAT(lstat64, stat64)

#define STATAT(name, kind) \
	int name(int folder, const char *path, struct kind *found, int flags) \
	{ \
		SHOWN; \
		REAL(name); \
		return real(folder, to, found, flags); \
	}
STATAT(fstatat, stat)
STATAT(fstatat64, stat64)

int statx(int folder, const char *path, int flags, unsigned int mask, struct statx *found)
{
	SHOWN;
	REAL(statx);
	return real(folder, to, flags, mask, found);
}

/* `ls -l` looks for them. */
#define XATTR(name) \
	ssize_t name(const char *path, const char *attribute, void *value, size_t size) \
	{ \
		SHOWN; \
		REAL(name); \
		return real(to, attribute, value, size); \
	}
XATTR(getxattr)
XATTR(lgetxattr)
