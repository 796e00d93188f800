/*
 * Makes system calls under whatever filters it has inherited, and prints what
 * the kernel answers, one line for each argument: the result or -errno.
 *
 *   n:NR:ARG...   a call of the machine's own ABI
 *   i:NR:ARG...   on x86-64, a call of the i386 ABI (int $0x80)
 *   t:NR:ARG...   as n, in a second thread; "killed" if it does not come back
 *   w:OFF:VALUE   stores 32 bits in the scratch page
 *   h             catches SIGSYS; the next calls print "trap NR ERRNO"
 *   p             makes a thread and a process through the C library
 *   r             waits for a byte on standard input
 *
 * ARG is a number, or @OFF for an address in the scratch page, which lies below
 * 4 GB on x86-64, for the sake of i.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef MAP_32BIT
#define BELOW_4GB MAP_32BIT
#else
#define BELOW_4GB 0
#endif

static char *scratch;
static volatile sig_atomic_t trapped;
static siginfo_t trap;
static int trap_errno;

static void on_sigsys(int sig, siginfo_t *info, void *context)
{
	(void)sig, (void)context;
	trap = *info;
	trap_errno = info->si_errno;
	trapped = 1;
}

static long native(const long *a)
{
	long r = syscall(a[0], a[1], a[2], a[3], a[4], a[5], a[6]);
	if (r == -1)
		r = -errno;
	if (a[0] == SYS_clone) {
		if (r == 0)
			_exit(0);
		if (r > 0)
			waitpid(r, NULL, __WALL);
	}
	return r;
}

static long i386(const long *a)
{
#ifdef __x86_64__
	int r;
	__asm__ volatile("int $0x80"
			 : "=a"(r)
			 : "a"((int)a[0]), "b"(a[1]), "c"(a[2]), "d"(a[3]), "S"(a[4]), "D"(a[5])
			 : "memory", "r8", "r9", "r10", "r11");
	return r;
#else
	(void)a;
	return -ENOSYS;
#endif
}

struct job {
	const long *args;
	long result;
	int done;
};

static void *in_thread(void *p)
{
	struct job *job = p;
	job->result = native(job->args);
	job->done = 1;
	return NULL;
}

static int parse(char *s, long *out)
{
	int n = 0;
	memset(out, 0, 8 * sizeof *out);
	for (char *f = strtok(s, ":"); f && n < 8; f = strtok(NULL, ":"))
		out[n++] = *f == '@' ? (long)(scratch + strtoul(f + 1, NULL, 0)) : (long)strtoull(f, NULL, 0);
	return n;
}

static int through_libc(void)
{
	long call[8] = {SYS_getppid};
	struct job job = {.args = call};
	pthread_t thread;
	int status, rc = pthread_create(&thread, NULL, in_thread, &job);
	if (rc != 0)
		return -rc;
	pthread_join(thread, NULL);
	if (!job.done)
		return -ECANCELED;
	pid_t pid = fork();
	if (pid == 0)
		_exit(7);
	if (pid < 0 || waitpid(pid, &status, 0) != pid || WEXITSTATUS(status) != 7)
		return -errno;
	return 0;
}

int main(int argc, char **argv)
{
	setvbuf(stdout, NULL, _IONBF, 0);
	scratch = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | BELOW_4GB, -1, 0);
	if (scratch == MAP_FAILED)
		return 100;
	for (int i = 1; i < argc; i++) {
		char kind = argv[i][0];
		long a[8];
		parse(argv[i] + (argv[i][1] == ':' ? 2 : 1), a);
		switch (kind) {
		case 'n':
		case 'i': {
			trapped = 0;
			long r = kind == 'n' ? native(a) : i386(a);
			if (trapped)
				printf("trap %d %d\n", trap.si_syscall, trap_errno);
			else
				printf("%ld\n", r);
			break;
		}
		case 't': {
			struct job job = {.args = a};
			pthread_t thread;
			if (pthread_create(&thread, NULL, in_thread, &job) != 0)
				return 101;
			pthread_join(thread, NULL);
			if (job.done)
				printf("%ld\n", job.result);
			else
				puts("killed");
			break;
		}
		case 'w':
			memcpy(scratch + a[0], &(unsigned){a[1]}, 4);
			puts("0");
			break;
		case 'h': {
			struct sigaction sa = {.sa_sigaction = on_sigsys, .sa_flags = SA_SIGINFO};
			printf("%d\n", sigaction(SIGSYS, &sa, NULL));
			break;
		}
		case 'p':
			printf("%d\n", through_libc());
			break;
		case 'r':
			puts("ready");
			printf("%zd\n", read(0, scratch, 1));
			break;
		default:
			return 102;
		}
	}
	return 0;
}
