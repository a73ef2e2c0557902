// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * engine.c - an engine for fio: files of a dure volume, through libdure, without a mount.
 *
 * PROBLEM. fio measures a file system through system calls. dure is a library as well, and there
 * its calls are to be measured, and verified, by a program that others know and trust.
 *
 * STRUCTURE. A job is a thread with a session (`struct job`). Jobs of one volume share one open
 * volume (`struct shared`): the first opens it, the last closes it. Writes and syncs are done when
 * queue() returns, as libdure does them; reads of a job with iodepth > 1 are submitted, and reaped
 * in getevents(). Files are laid out by prepopulate_file(), because fio's own layout would be done
 * through system calls on a path of the host.
 *
 * INVARIANTS. A volume is opened and closed under `shared_lock`. What fio is asked for and this
 * engine cannot do is refused in attach(), before a volume is opened; nothing is left out silently.
 * fio's structures are used only if the fio that runs is the one whose headers this was compiled
 * with: another one finds no engine here (check_fio).
 *
 * ON A CRASH of fio, what was synced is there; the next open recovers the volume.
 *
 * `build` compiles it. fio's headers are GPL-2.0: so is what this becomes with them.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/falloc.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "fio.h"
#include "optgroup.h"

#include <dure.h>

#if FIO_IOOPS_VERSION < 31
#error "the engine of dure needs fio 3.33 or later"
#endif
#ifndef BUILT_FOR
#error "compile it by the program build, which says for which fio (BUILT_FOR)"
#endif

struct options {
	void *pad; /* fio takes an option at offset 0 for none */
	char *volume;
	char *mount_options;
};

static struct fio_option options[] = {
	{
		.name = "volume",
		.lname = "Volume",
		.type = FIO_OPT_STR_STORE,
		.off1 = offsetof(struct options, volume),
		.help = "Image or device of the dure volume",
		.category = FIO_OPT_C_ENGINE,
		.group = FIO_OPT_G_INVALID,
	},
	{
		.name = "mount_options",
		.lname = "Mount options",
		.type = FIO_OPT_STR_STORE,
		.off1 = offsetof(struct options, mount_options),
		.help = "Options of the volume, with commas between them",
		.category = FIO_OPT_C_ENGINE,
		.group = FIO_OPT_G_INVALID,
	},
	{ .name = NULL },
};

/* The engine, as fio looks for it by this name. */
struct ioengine_ops ioengine;

/* ---- volumes ---- */

/* An open volume. [shared_lock] */
struct shared {
	struct shared *next;
	char *path; /* without symbolic links */
	char *mount_options;
	dure_volume *volume;
	unsigned int jobs;
};

static pthread_mutex_t shared_lock = PTHREAD_MUTEX_INITIALIZER;
static struct shared *volumes;

struct job {
	struct shared *shared;
	dure_session *session;
	dure_calls *calls; /* NULL: one call at a time */
	struct io_u **events; /* what getevents() has found, iodepth of them */
};

/* Says why the last call of libdure failed; the job ends with its error. */
static int failed(struct thread_data *td, int64_t negative, const char *call)
{
	log_err("fio: dure: %s\n", dure_last_error());
	td_verror(td, (int)-negative, call);
	return 1;
}

static int refused(struct thread_data *td, const char *why)
{
	log_err("fio: dure: %s: %s\n", td->o.name, why);
	td_verror(td, EINVAL, "dure");
	return 1;
}

static int out_of_memory(struct thread_data *td)
{
	td_verror(td, ENOMEM, "dure");
	return 1;
}

/* The lock is held. */
static struct shared *find_shared(const char *path)
{
	struct shared *shared = volumes;

	while (shared && strcmp(shared->path, path))
		shared = shared->next;
	return shared;
}

static void free_shared(struct shared *shared)
{
	free(shared->path);
	free(shared->mount_options);
	free(shared);
}

/* Opens a volume that no job has. The lock is held. */
static struct shared *open_shared(struct thread_data *td, const char *path, const char *words)
{
	struct shared *shared = calloc(1, sizeof(*shared));
	int bad;

	if (!shared) {
		out_of_memory(td);
		return NULL;
	}
	shared->path = strdup(path);
	shared->mount_options = strdup(words);
	if (!shared->path || !shared->mount_options) {
		out_of_memory(td);
		free_shared(shared);
		return NULL;
	}
	bad = dure_volume_open(path, words, &shared->volume);
	if (bad < 0) {
		failed(td, bad, "dure_volume_open");
		free_shared(shared);
		return NULL;
	}
	shared->next = volumes;
	volumes = shared;
	return shared;
}

/* The volume of a job's options, which has one job more. */
static struct shared *take_shared(struct thread_data *td)
{
	struct options *o = td->eo;
	const char *words = o->mount_options ? o->mount_options : "";
	char path[PATH_MAX];
	struct shared *shared;

	if (!realpath(o->volume, path)) {
		log_err("fio: dure: volume=%s: %s\n", o->volume, strerror(errno));
		td_verror(td, errno, "volume");
		return NULL;
	}
	pthread_mutex_lock(&shared_lock);
	shared = find_shared(path);
	if (!shared) {
		shared = open_shared(td, path, words);
	} else if (strcmp(shared->mount_options, words)) {
		refused(td, "mount_options= differ from those of a job that has the volume open");
		shared = NULL;
	}
	if (shared)
		shared->jobs++;
	pthread_mutex_unlock(&shared_lock);
	return shared;
}

/* Closes a volume; 0 or a negative error, of which it has told. The lock is held. */
static int close_shared(struct shared *shared)
{
	struct shared **place = &volumes;
	int bad = dure_volume_close(shared->volume);

	if (bad < 0)
		log_err("fio: dure: %s: %s\n", shared->path, dure_last_error());
	while (*place != shared)
		place = &(*place)->next;
	*place = shared->next;
	free_shared(shared);
	return bad;
}

static int give_shared_back(struct shared *shared)
{
	int bad = 0;

	pthread_mutex_lock(&shared_lock);
	if (--shared->jobs == 0)
		bad = close_shared(shared);
	pthread_mutex_unlock(&shared_lock);
	return bad;
}

/*
 * fio drops jobs that fail between setup() and their start without a word to the engine. What they
 * have open is closed here, at the end of fio.
 */
static void close_all(void)
{
	pthread_mutex_lock(&shared_lock);
	while (volumes)
		close_shared(volumes);
	pthread_mutex_unlock(&shared_lock);
}

/* ---- jobs ---- */

/* Why a job cannot be done here, or NULL. */
static const char *why_not(const struct thread_data *td)
{
	const struct options *o = td->eo;

	if (td->io_ops != &ioengine)
		return "this fio was configured otherwise than the one this engine was built for";
	if (!td->o.use_thread)
		return "thread=1 is missing: a volume is open in one process, and without it each job "
		       "is one";
	if (!o->volume)
		return "volume= is missing: an image or a device with a dure volume";
	if (td->o.odirect)
		return "direct=1: a volume has no O_DIRECT; give mount_options=cache= less than the "
		       "file instead";
	if (td->o.fill_device)
		return "fill_device=1 cannot be done: give size=";
	if (td->o.zone_mode == ZONE_MODE_ZBD)
		return "zonemode=zbd: a file has no zones";
	if (td->o.pre_read)
		return "pre_read=1 cannot be done: read the file in a job before, and let this one "
		       "keep it by invalidate=0";
	return NULL;
}

static void cleanup(struct thread_data *td)
{
	struct job *job = td->io_ops_data;
	int bad = 0;

	if (!job)
		return;
	td->io_ops_data = NULL;
	dure_calls_close(job->calls);
	dure_session_close(job->session);
	if (job->shared)
		bad = give_shared_back(job->shared);
	if (bad < 0)
		td_verror(td, -bad, "dure_volume_close");
	free(job->events);
	free(job);
}

/* Gives a thread its job, unless it has one. fio calls setup() or init() first, as options say. */
static int attach(struct thread_data *td)
{
	const char *why = why_not(td);
	struct job *job;
	int bad;

	if (why)
		return refused(td, why);
	if (td->io_ops_data)
		return 0;
	job = calloc(1, sizeof(*job));
	if (!job)
		return out_of_memory(td);
	td->io_ops_data = job;
	job->shared = take_shared(td);
	if (!job->shared) {
		cleanup(td);
		return 1;
	}
	bad = dure_session_open_process(job->shared->volume, &job->session);
	if (bad < 0) {
		failed(td, bad, "dure_session_open_process");
		cleanup(td);
		return 1;
	}
	return 0;
}

/* In the thread of the job. */
static int init(struct thread_data *td)
{
	struct job *job;
	int bad;

	if (attach(td))
		return 1;
	job = td->io_ops_data;
	if (td->o.iodepth == 1)
		return 0;
	job->events = calloc(td->o.iodepth, sizeof(*job->events));
	if (!job->events)
		return out_of_memory(td);
	bad = dure_calls_open(job->shared->volume, td->o.iodepth, &job->calls);
	return bad < 0 ? failed(td, bad, "dure_calls_open") : 0;
}

/* ---- files ---- */

static int get_file_size(struct thread_data *td, struct fio_file *f)
{
	struct job *job = td->io_ops_data;
	struct dure_stat stat;
	int bad;

	f->filetype = FIO_TYPE_FILE;
	f->real_file_size = 0;
	bad = dure_stat(job->session, f->file_name, &stat);
	if (bad < 0 && bad != -ENOENT)
		return failed(td, bad, "dure_stat");
	if (bad == 0) {
		if (!S_ISREG(stat.mode)) {
			log_err("fio: dure: %s: no regular file\n", f->file_name);
			td_verror(td, EINVAL, "dure_stat");
			return 1;
		}
		f->real_file_size = stat.size;
	}
	fio_file_set_size_known(f);
	return 0;
}

/* In fio's first thread, but with create_serialize=0. */
static int setup(struct thread_data *td)
{
	struct fio_file *f;
	unsigned int i;

	if (attach(td))
		return 1;
	for_each_file(td, f, i) {
		if (get_file_size(td, f)) {
			cleanup(td);
			return 1;
		}
	}
	return 0;
}

/* Makes the directories of a path, as fio does on a host; what is wrong, opening it will tell. */
static void make_directories(struct job *job, const char *path)
{
	char part[PATH_MAX];
	const char *slash = path;

	while ((slash = strchr(slash + 1, '/')) && (size_t)(slash - path) < sizeof(part)) {
		memcpy(part, path, slash - path);
		part[slash - path] = 0;
		dure_mkdir(job->session, part, 0755);
	}
}

static int open_named(struct thread_data *td, struct fio_file *f, int flags, dure_file **file)
{
	struct job *job = td->io_ops_data;
	int bad;

	if (flags & O_CREAT)
		make_directories(job, f->file_name);
	bad = dure_open(job->session, f->file_name, flags, 0644, file);
	return bad < 0 ? failed(td, bad, "dure_open") : 0;
}

/* Drops what memory holds of a file and is not dirty. */
static int drop_cached(const dure_file *file, const struct fio_file *f)
{
	return dure_fadvise(file, f->file_offset, f->io_size, POSIX_FADV_DONTNEED);
}

/* fio warns of an error. */
static int invalidate(struct thread_data *td, struct fio_file *f)
{
	const dure_file *file = FILE_ENG_DATA(f);

	return file ? drop_cached(file, f) : 0;
}

static int open_file(struct thread_data *td, struct fio_file *f)
{
	int flags = td->o.sync_io & (O_SYNC | O_DSYNC);
	dure_file *file;

	if (td_write(td) || td_trim(td))
		flags |= O_RDWR;
	if ((td_write(td) || td->o.create_on_open) && td->o.allow_create)
		flags |= O_CREAT;
	if (open_named(td, f, flags, &file))
		return 1;
	/* fio does so itself, but not for engines without a disk of the host. */
	if (td->o.invalidate_cache)
		drop_cached(file, f);
	FILE_SET_ENG_DATA(f, file);
	return 0;
}

static int close_file(struct thread_data *td, struct fio_file *f)
{
	dure_file *file = FILE_ENG_DATA(f);

	FILE_SET_ENG_DATA(f, NULL);
	return -dure_close(file);
}

static int unlink_file(struct thread_data *td, struct fio_file *f)
{
	struct job *job = td->io_ops_data;

	return -dure_unlink(job->session, f->file_name);
}

/* ---- layout ---- */

/* As fallocate= says. That a native one is refused does not matter to fio. */
static int allocate(struct thread_data *td, const dure_file *file, int64_t len)
{
	int bad = 0;

	switch (td->o.fallocate_mode) {
	case FIO_FALLOCATE_NONE:
		return 0;
	case FIO_FALLOCATE_NATIVE:
		dure_fallocate(file, 0, 0, len);
		return 0;
	case FIO_FALLOCATE_POSIX:
		bad = dure_fallocate(file, 0, 0, len);
		break;
	case FIO_FALLOCATE_KEEP_SIZE:
		bad = dure_fallocate(file, FALLOC_FL_KEEP_SIZE, 0, len);
		break;
	case FIO_FALLOCATE_TRUNCATE:
		bad = dure_ftruncate(file, len);
		break;
	}
	return bad < 0 ? failed(td, bad, "dure_fallocate") : 0;
}

/* Writes the whole file, with the content that buffers of the job have. */
static int fill(struct thread_data *td, const dure_file *file, uint64_t len)
{
	uint64_t step = td->o.max_bs[DDIR_WRITE], at = 0;
	char *buffer = malloc(step);

	if (!buffer)
		return out_of_memory(td);
	while (at < len && !td->terminate) {
		ssize_t done;

		if (step > len - at)
			step = len - at;
		fill_io_buffer(td, buffer, step, step);
		done = dure_pwrite(file, buffer, step, (int64_t)at);
		if (done < 0) {
			free(buffer);
			return failed(td, done, "dure_pwrite");
		}
		at += done;
	}
	free(buffer);
	return 0;
}

/*
 * Lays a file out as fio does on a host: one that will be read, or overwritten, is written; another
 * is allocated; one that is long enough stays as it is.
 */
static int prepopulate_file(struct thread_data *td, struct fio_file *f)
{
	const uint64_t len = f->file_offset + f->io_size;
	const bool is_written = td_read(td) ||
				(td_write(td) && td->o.overwrite && !td->o.file_append);
	int flags = O_WRONLY, bad = 0;
	dure_file *file;

	if (f->real_file_size >= len)
		return 0;
	f->real_file_size = len;
	if (td->o.create_on_open)
		return 0;
	if (read_only)
		return refused(td, "a file has to be laid out, and --readonly is given");
	if (td->o.allow_create)
		flags |= O_CREAT;
	if (is_written)
		flags |= O_TRUNC;
	if (open_named(td, f, flags, &file))
		return 1;
	bad = allocate(td, file, (int64_t)len);
	if (!bad && is_written)
		bad = fill(td, file, len);
	if (!bad && is_written && td->o.create_fsync) {
		int error = dure_fsync(file);

		bad = error < 0 ? failed(td, error, "dure_fsync") : 0;
		drop_cached(file, f);
	}
	dure_close(file);
	return bad;
}

/* ---- calls ---- */

static void set_result(struct io_u *io_u, int64_t result)
{
	if (result < 0)
		io_u->error = (unsigned int)-result;
	else
		io_u->resid = io_u->xfer_buflen - (uint64_t)result;
}

/* A call that is done when this returns; its result. */
static int64_t call(const dure_file *file, struct io_u *io_u)
{
	const int64_t offset = (int64_t)io_u->offset;
	int bad;

	switch (io_u->ddir) {
	case DDIR_READ:
		return dure_pread(file, io_u->xfer_buf, io_u->xfer_buflen, offset);
	case DDIR_WRITE:
		return dure_pwrite(file, io_u->xfer_buf, io_u->xfer_buflen, offset);
	case DDIR_TRIM:
		bad = dure_fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset,
				     (int64_t)io_u->xfer_buflen);
		break;
	case DDIR_SYNC:
		bad = dure_fsync(file);
		break;
	case DDIR_DATASYNC:
		bad = dure_fdatasync(file);
		break;
	default: /* sync_file_range= */
		return -EOPNOTSUPP;
	}
	return bad < 0 ? bad : (int64_t)io_u->xfer_buflen;
}

static enum fio_q_status queue(struct thread_data *td, struct io_u *io_u)
{
	struct job *job = td->io_ops_data;
	const dure_file *file = FILE_ENG_DATA(io_u->file);
	int64_t result;

	fio_ro_check(td, io_u);
	/* Before the call: of one that is done here, fio would take the time afterwards. */
	if (fio_fill_issue_time(td)) {
		fio_gettime(&io_u->issue_time, NULL);
		if (td->o.read_iolog_file)
			td->last_issue = io_u->issue_time;
	}
	if (job->calls && io_u->ddir == DDIR_READ) {
		result = dure_submit_read(job->calls, file, io_u->xfer_buf, io_u->xfer_buflen,
					  (int64_t)io_u->offset, (uintptr_t)io_u);
		if (result == 0)
			return FIO_Q_QUEUED;
	} else {
		result = call(file, io_u);
	}
	set_result(io_u, result);
	if (io_u->error)
		io_u_log_error(td, io_u);
	return FIO_Q_COMPLETED;
}

/* fio gives no time limit with a least number of events. */
static int getevents(struct thread_data *td, unsigned int min, unsigned int max,
		     const struct timespec *t)
{
	struct job *job = td->io_ops_data;
	unsigned int found = 0;

	while (job->calls && found < max) {
		struct dure_done done;
		int more = found < min ? dure_reap(job->calls, &done) :
					 dure_try_reap(job->calls, &done);

		if (more < 0)
			return more;
		if (more == 0)
			break;
		job->events[found] = (struct io_u *)(uintptr_t)done.token;
		set_result(job->events[found], done.result);
		found++;
	}
	return (int)found;
}

static struct io_u *event(struct thread_data *td, int number)
{
	struct job *job = td->io_ops_data;

	return job->events[number];
}

struct ioengine_ops ioengine = {
	.name = "dure",
	.version = FIO_IOOPS_VERSION,
	.flags = FIO_DISKLESSIO | FIO_NODISKUTIL | FIO_NO_OFFLOAD | FIO_ASYNCIO_SETS_ISSUE_TIME,
	.setup = setup,
	.init = init,
	.queue = queue,
	.getevents = getevents,
	.event = event,
	.cleanup = cleanup,
	.open_file = open_file,
	.close_file = close_file,
	.invalidate = invalidate,
	.unlink_file = unlink_file,
	.get_file_size = get_file_size,
	.prepopulate_file = prepopulate_file,
	.options = options,
	.option_struct_size = sizeof(struct options),
};

/*
 * When fio loads it. The number of the interface changes more seldom than the structures do, so the
 * version has to be the same; of another one the number is made wrong, which fio refuses.
 */
__attribute__((constructor)) static void check_fio(void)
{
	if (strcmp(fio_version_string, BUILT_FOR) == 0) {
		atexit(close_all);
		return;
	}
	log_err("fio: dure: this is %s, and the engine was built for %s: build it again\n",
		fio_version_string, BUILT_FOR);
	ioengine.version = 0;
}
