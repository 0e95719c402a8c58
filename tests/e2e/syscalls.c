/* What a process does to the files below one directory: recorded call by call.

Loaded into the real daemon with LD_PRELOAD. SYSCALLS_ROOT is the directory. SYSCALLS_TRACE is the
file that takes the records (syscalls.py reads it): a call and its record are one step, so that the
file's order is the order in which the system saw the calls. A sync takes long and has two records,
where it begins and where it has succeeded. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#define PATH_BYTES 4096

struct record {
    uint32_t kind;
    int32_t fd;
    uint64_t position;
    uint64_t length;
};

static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;
static const char *root;
static int trace = -1;

static void *real(const char *name)
{
    void *found = dlsym(RTLD_NEXT, name);
    if (!found) {
        fprintf(stderr, "syscalls: the C library has no %s\n", name);
        abort();
    }
    return found;
}

#define REAL(type, name, ...) ((type(*)(__VA_ARGS__))real(name))

static void put(const void *data, size_t length)
{
    const char *at = data;
    while (length) {
        ssize_t taken = REAL(ssize_t, "write", int, const void *, size_t)(trace, at, length);
        if (taken <= 0) {
            fprintf(stderr, "syscalls: the trace cannot be written: %s\n", strerror(errno));
            abort();
        }
        at += taken;
        length -= taken;
    }
}

static void note(char kind, int fd, uint64_t position, uint64_t length, const void *data)
{
    struct record record = {(uint32_t)kind, fd, position, length};
    if (trace < 0)
        return;
    put(&record, sizeof record);
    if (data)
        put(data, length);
}

__attribute__((constructor)) static void begin(void)
{
    const char *path = getenv("SYSCALLS_TRACE");
    root = getenv("SYSCALLS_ROOT");
    if (path)
        trace = REAL(int, "open", const char *, int, ...)(
            path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (path && trace < 0) {
        fprintf(stderr, "syscalls: %s: %s\n", path, strerror(errno));
        abort();
    }
}

static int is_ours(const char *path)
{
    size_t length = root ? strlen(root) : 0;
    return length && !strncmp(path, root, length) && (path[length] == '/' || !path[length]);
}

/* The path of a descriptor that is ours, in `path`; 0 when it is not. */
static int path_of(int fd, char *path)
{
    char link[64];
    int kept = errno;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, PATH_BYTES - 1);
    errno = kept;
    path[length > 0 ? length : 0] = 0;
    return length > 0 && is_ours(path);
}

static int open_any(const char *name, const char *path, int flags, mode_t mode)
{
    int is_new = (flags & O_CREAT) != 0;
    if (!is_ours(path))
        return REAL(int, name, const char *, int, ...)(path, flags, mode);
    pthread_mutex_lock(&turn);
    int fd = REAL(int, name, const char *, int, ...)(path, flags, mode);
    if (fd >= 0)
        note(is_new ? 'c' : 'o', fd, (uint64_t)flags, strlen(path), path);
    pthread_mutex_unlock(&turn);
    return fd;
}

#define OPEN(name)                                                                                 \
    int name(const char *path, int flags, ...)                                                     \
    {                                                                                              \
        va_list rest;                                                                              \
        va_start(rest, flags);                                                                     \
        mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0;                    \
        va_end(rest);                                                                              \
        return open_any(#name, path, flags, mode);                                                 \
    }
OPEN(open)
OPEN(open64)

int close(int fd)
{
    char path[PATH_BYTES];
    int ours = path_of(fd, path);
    if (!ours)
        return REAL(int, "close", int)(fd);
    pthread_mutex_lock(&turn);
    int done = REAL(int, "close", int)(fd);
    note('x', fd, 0, 0, NULL);
    pthread_mutex_unlock(&turn);
    return done;
}

static void note_written(int fd, const struct iovec *pieces, int count, off64_t position, ssize_t n)
{
    char *data = malloc(n ? n : 1), *end = data;
    size_t left = n;
    for (int at = 0; at < count && left; at++) {
        size_t length = pieces[at].iov_len < left ? pieces[at].iov_len : left;
        memcpy(end, pieces[at].iov_base, length);
        end += length;
        left -= length;
    }
    note('w', fd, (uint64_t)position, (uint64_t)n, data);
    free(data);
}

#define PWRITEV2(fd, pieces, count, at, flags)                                                     \
    REAL(ssize_t, "pwritev64v2", int, const struct iovec *, int, off64_t, int)(fd, pieces, count,  \
                                                                               at, flags)
static ssize_t write_any(int fd, const struct iovec *pieces, int count, off64_t at, int flags)
{
    char path[PATH_BYTES];
    if (!path_of(fd, path))
        return PWRITEV2(fd, pieces, count, at, flags);
    pthread_mutex_lock(&turn);
    ssize_t n = PWRITEV2(fd, pieces, count, at, flags);
    if (n >= 0 && trace >= 0)
        note_written(fd, pieces, count, at, n);
    pthread_mutex_unlock(&turn);
    return n;
}

#define AT(name, offset)                                                                           \
    ssize_t name(int fd, const struct iovec *pieces, int count, offset at)                         \
    {                                                                                              \
        return write_any(fd, pieces, count, at, 0);                                                \
    }
#define AT2(name, offset)                                                                          \
    ssize_t name(int fd, const struct iovec *pieces, int count, offset at, int flags)              \
    {                                                                                              \
        return write_any(fd, pieces, count, at, flags);                                            \
    }
AT(pwritev, off_t)
AT(pwritev64, off64_t)
AT2(pwritev2, off_t)
AT2(pwritev64v2, off64_t)

/* A call that the recorder does not know must not change a file unseen. */
static void refuse(const char *name, int fd)
{
    char path[PATH_BYTES];
    if (path_of(fd, path)) {
        fprintf(stderr, "syscalls: %s on %s is not recorded\n", name, path);
        abort();
    }
}

ssize_t write(int fd, const void *data, size_t length)
{
    refuse("write", fd);
    return REAL(ssize_t, "write", int, const void *, size_t)(fd, data, length);
}

#define PWRITE(name, offset)                                                                       \
    ssize_t name(int fd, const void *data, size_t length, offset at)                               \
    {                                                                                              \
        refuse(#name, fd);                                                                         \
        return REAL(ssize_t, #name, int, const void *, size_t, offset)(fd, data, length, at);      \
    }
PWRITE(pwrite, off_t)
PWRITE(pwrite64, off64_t)

#define FALLOCATE(name, offset)                                                                    \
    int name(int fd, offset at, offset length)                                                     \
    {                                                                                              \
        refuse(#name, fd);                                                                         \
        return REAL(int, #name, int, offset, offset)(fd, at, length);                              \
    }
FALLOCATE(posix_fallocate, off_t)
FALLOCATE(posix_fallocate64, off64_t)

#define FTRUNCATE(name, offset)                                                                    \
    int name(int fd, offset length)                                                                \
    {                                                                                              \
        char path[PATH_BYTES];                                                                     \
        if (!path_of(fd, path))                                                                    \
            return REAL(int, #name, int, offset)(fd, length);                                      \
        pthread_mutex_lock(&turn);                                                                 \
        int done = REAL(int, #name, int, offset)(fd, length);                                      \
        if (!done)                                                                                 \
            note('t', fd, (uint64_t)length, 0, NULL);                                              \
        pthread_mutex_unlock(&turn);                                                               \
        return done;                                                                               \
    }
FTRUNCATE(ftruncate, off_t)
FTRUNCATE(ftruncate64, off64_t)

static int sync_any(const char *name, int fd)
{
    char path[PATH_BYTES];
    if (!path_of(fd, path))
        return REAL(int, name, int)(fd);
    pthread_mutex_lock(&turn);
    note('s', fd, 0, 0, NULL);
    pthread_mutex_unlock(&turn);
    int done = REAL(int, name, int)(fd);
    pthread_mutex_lock(&turn);
    if (!done)
        note('e', fd, 0, 0, NULL);
    pthread_mutex_unlock(&turn);
    return done;
}

int fsync(int fd) { return sync_any("fsync", fd); }
int fdatasync(int fd) { return sync_any("fdatasync", fd); }

static int entry(const char *name, char kind, const char *path)
{
    pthread_mutex_lock(&turn);
    int done = REAL(int, name, const char *)(path);
    if (!done && is_ours(path))
        note(kind, -1, 0, strlen(path), path);
    pthread_mutex_unlock(&turn);
    return done;
}

int unlink(const char *path) { return entry("unlink", 'u', path); }
int rmdir(const char *path) { return entry("rmdir", 'd', path); }

int mkdir(const char *path, mode_t mode)
{
    if (!is_ours(path))
        return REAL(int, "mkdir", const char *, mode_t)(path, mode);
    pthread_mutex_lock(&turn);
    int done = REAL(int, "mkdir", const char *, mode_t)(path, mode);
    if (!done)
        note('m', -1, 0, strlen(path), path);
    pthread_mutex_unlock(&turn);
    return done;
}

int rename(const char *old, const char *new)
{
    char both[2 * PATH_BYTES];
    if (!is_ours(new))
        return REAL(int, "rename", const char *, const char *)(old, new);
    pthread_mutex_lock(&turn);
    int done = REAL(int, "rename", const char *, const char *)(old, new);
    int length = snprintf(both, sizeof both, "%s%c%s", old, 0, new);
    if (!done)
        note('r', -1, 0, (uint64_t)length, both);
    pthread_mutex_unlock(&turn);
    return done;
}
