//! The default seccomp profile (`RuntimeDefault`), in the form of OCI's `linux.seccomp`.
//!
//! The calls are those of containerd 1.6, without io_uring as in containerd 2. OCI runtimes skip
//! the names that the machine's libseccomp does not know, so one list is for all kernels.

use super::capabilities::Capabilities;
use super::write::Writer;

/// Writes the fields of `linux.seccomp` for a process with these capabilities in its bounding set.
pub(super) fn runtime_default(w: &mut Writer, bounding: Capabilities) {
    w.text("defaultAction", "SCMP_ACT_ERRNO");
    w.texts("architectures", ARCHITECTURES);
    w.list("syscalls", &mut |w| {
        allow(w, ALWAYS, None);
        // Linux, and the kinds of it that older programs ask for: personality(2).
        for kind in [0, 8, 0x2_0000, 0x2_0008, 0xffff_ffff] {
            allow(w, "personality", Some(("SCMP_CMP_EQ", kind)));
        }
        allow(w, OF_ARCHITECTURE, None);
        for (capability, names) in WITH_CAPABILITY {
            if bounding.has(capability) {
                allow(w, names, None);
            }
        }
        if !bounding.has("SYS_ADMIN") {
            allow(w, "clone", Some(("SCMP_CMP_MASKED_EQ", CLONE_NAMESPACES)));
            // Its flags lie in memory, where a filter cannot read: libraries then take clone.
            w.item(&mut |w| {
                w.texts("names", &["clone3"]);
                w.text("action", "SCMP_ACT_ERRNO");
                w.number("errnoRet", ENOSYS);
            });
        }
    });
}

/// A rule for these names: any call, or one whose first argument compares so.
fn allow(w: &mut Writer, names: &str, argument: Option<(&str, u64)>) {
    w.item(&mut |w| {
        w.texts("names", &names.split_ascii_whitespace().collect::<Vec<_>>());
        w.text("action", ALLOW);
        if let Some((op, value)) = argument {
            w.list("args", &mut |w| {
                w.item(&mut |w| {
                    w.number("index", 0);
                    w.number("value", value);
                    w.text("op", op);
                });
            });
        }
    });
}

const ALLOW: &str = "SCMP_ACT_ALLOW";
const ENOSYS: u64 = 38;
/// The `CLONE_NEW*` flags: in a call, the argument with this mask equals nothing of them. The
/// encoding of OCI: the value is the mask, and what it must equal is 0.
const CLONE_NAMESPACES: u64 = 0x7e02_0000;

#[cfg(target_arch = "x86_64")]
const ARCHITECTURES: &[&str] = &["SCMP_ARCH_X86_64", "SCMP_ARCH_X86", "SCMP_ARCH_X32"];
#[cfg(target_arch = "x86_64")]
const OF_ARCHITECTURE: &str = "arch_prctl modify_ldt";
#[cfg(target_arch = "aarch64")]
const ARCHITECTURES: &[&str] = &["SCMP_ARCH_ARM", "SCMP_ARCH_AARCH64"];
#[cfg(target_arch = "arm")]
const ARCHITECTURES: &[&str] = &["SCMP_ARCH_ARM"];
#[cfg(any(target_arch = "arm", target_arch = "aarch64"))]
const OF_ARCHITECTURE: &str =
    "arm_fadvise64_64 arm_sync_file_range breakpoint cacheflush set_tls sync_file_range2";
/// The OCI runtime takes the machine's own.
#[cfg(not(any(target_arch = "x86_64", target_arch = "arm", target_arch = "aarch64")))]
const ARCHITECTURES: &[&str] = &[];
#[cfg(not(any(target_arch = "x86_64", target_arch = "arm", target_arch = "aarch64")))]
const OF_ARCHITECTURE: &str = "riscv_flush_icache";

const WITH_CAPABILITY: [(&str, &str); 14] = [
    ("DAC_READ_SEARCH", "open_by_handle_at"),
    (
        "SYS_ADMIN",
        "bpf clone clone3 fanotify_init fsconfig fsmount fsopen fspick lookup_dcookie mount \
         mount_setattr move_mount name_to_handle_at open_tree perf_event_open quotactl \
         quotactl_fd setdomainname sethostname setns syslog umount umount2 unshare",
    ),
    ("SYS_BOOT", "reboot"),
    ("SYS_CHROOT", "chroot"),
    ("SYS_MODULE", "delete_module init_module finit_module"),
    ("SYS_PACCT", "acct"),
    ("SYS_PTRACE", "kcmp pidfd_getfd process_madvise process_vm_readv process_vm_writev"),
    ("SYS_RAWIO", "iopl ioperm"),
    ("SYS_TIME", "settimeofday stime clock_settime clock_settime64"),
    ("SYS_TTY_CONFIG", "vhangup"),
    ("SYS_NICE", "get_mempolicy mbind set_mempolicy"),
    ("SYSLOG", "syslog"),
    ("BPF", "bpf"),
    ("PERFMON", "perf_event_open"),
];

/// With the spellings of 32-bit machines.
const ALWAYS: &str = "\
accept accept4 access adjtimex alarm bind brk capget capset chdir chmod chown chown32 \
clock_adjtime clock_adjtime64 clock_getres clock_getres_time64 clock_gettime clock_gettime64 \
clock_nanosleep clock_nanosleep_time64 close close_range connect copy_file_range creat dup dup2 \
dup3 epoll_create epoll_create1 epoll_ctl epoll_ctl_old epoll_pwait epoll_pwait2 epoll_wait \
epoll_wait_old eventfd eventfd2 execve execveat exit exit_group faccessat faccessat2 fadvise64 \
fadvise64_64 fallocate fanotify_mark fchdir fchmod fchmodat fchown fchown32 fchownat fcntl \
fcntl64 fdatasync fgetxattr flistxattr flock fork fremovexattr fsetxattr fstat fstat64 fstatat64 \
fstatfs fstatfs64 fsync ftruncate ftruncate64 futex futex_time64 futex_waitv futimesat \
get_robust_list get_thread_area getcpu getcwd getdents getdents64 getegid getegid32 geteuid \
geteuid32 getgid getgid32 getgroups getgroups32 getitimer getpeername getpgid getpgrp getpid \
getppid getpriority getrandom getresgid getresgid32 getresuid getresuid32 getrlimit getrusage \
getsid getsockname getsockopt gettid gettimeofday getuid getuid32 getxattr inotify_add_watch \
inotify_init inotify_init1 inotify_rm_watch io_cancel io_destroy io_getevents io_pgetevents \
io_pgetevents_time64 io_setup io_submit ioctl ioprio_get ioprio_set ipc kill landlock_add_rule \
landlock_create_ruleset landlock_restrict_self lchown lchown32 lgetxattr link linkat listen \
listxattr llistxattr _llseek lremovexattr lseek lsetxattr lstat lstat64 madvise membarrier \
memfd_create memfd_secret mincore mkdir mkdirat mknod mknodat mlock mlock2 mlockall mmap mmap2 \
mprotect mq_getsetattr mq_notify mq_open mq_timedreceive mq_timedreceive_time64 mq_timedsend \
mq_timedsend_time64 mq_unlink mremap msgctl msgget msgrcv msgsnd msync munlock munlockall munmap \
nanosleep newfstatat _newselect open openat openat2 pause pidfd_open pidfd_send_signal pipe \
pipe2 pkey_alloc pkey_free pkey_mprotect poll ppoll ppoll_time64 prctl pread64 preadv preadv2 \
prlimit64 process_mrelease pselect6 pselect6_time64 ptrace pwrite64 pwritev pwritev2 read \
readahead readlink readlinkat readv recv recvfrom recvmmsg recvmmsg_time64 recvmsg \
remap_file_pages removexattr rename renameat renameat2 restart_syscall rmdir rseq rt_sigaction \
rt_sigpending rt_sigprocmask rt_sigqueueinfo rt_sigreturn rt_sigsuspend rt_sigtimedwait \
rt_sigtimedwait_time64 rt_tgsigqueueinfo sched_get_priority_max sched_get_priority_min \
sched_getaffinity sched_getattr sched_getparam sched_getscheduler sched_rr_get_interval \
sched_rr_get_interval_time64 sched_setaffinity sched_setattr sched_setparam sched_setscheduler \
sched_yield seccomp select semctl semget semop semtimedop semtimedop_time64 send sendfile \
sendfile64 sendmmsg sendmsg sendto set_robust_list set_thread_area set_tid_address setfsgid \
setfsgid32 setfsuid setfsuid32 setgid setgid32 setgroups setgroups32 setitimer setpgid \
setpriority setregid setregid32 setresgid setresgid32 setresuid setresuid32 setreuid setreuid32 \
setrlimit setsid setsockopt setuid setuid32 setxattr shmat shmctl shmdt shmget shutdown \
sigaltstack signalfd signalfd4 sigprocmask sigreturn socket socketcall socketpair splice stat \
stat64 statfs statfs64 statx symlink symlinkat sync sync_file_range syncfs sysinfo tee tgkill \
time timer_create timer_delete timer_getoverrun timer_gettime timer_gettime64 timer_settime \
timer_settime64 timerfd_create timerfd_gettime timerfd_gettime64 timerfd_settime \
timerfd_settime64 times tkill truncate truncate64 ugetrlimit umask uname unlink unlinkat utime \
utimensat utimensat_time64 utimes vfork vmsplice wait4 waitid waitpid write writev";

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn profile(bounding: u64) -> Value {
        let bytes = Writer::object(&mut |w| runtime_default(w, Capabilities(bounding)));
        serde_json::from_slice(&bytes).expect("JSON")
    }

    /// What the rules say about one call.
    fn of<'a>(profile: &'a Value, call: &str) -> Vec<&'a Value> {
        let rules = profile["syscalls"].as_array().expect("a list").iter();
        let names = |rule: &&Value| {
            rule["names"].as_array().expect("a list").iter().any(|name| name == call)
        };
        rules.filter(names).collect()
    }

    #[test]
    fn ordinary_calls_are_allowed_and_others_are_not() {
        let profile = profile(0);
        assert_eq!(profile["defaultAction"], "SCMP_ACT_ERRNO");
        for call in ["read", "openat2", "clock_nanosleep_time64", "ptrace", "_llseek"] {
            let rules = of(&profile, call);
            assert_eq!((rules.len(), &rules[0]["action"]), (1, &Value::from(ALLOW)), "{call}");
        }
        for call in ["mount", "bpf", "io_uring_setup", "chroot", "kexec_load", "keyctl", "setns"] {
            assert!(of(&profile, call).is_empty(), "{call}");
        }
        assert_eq!(of(&profile, "personality").len(), 5);
        let count = ALWAYS.split_ascii_whitespace().count();
        assert_eq!(count, 349 - 3 + 1, "containerd's, without io_uring and with ptrace");
    }

    #[test]
    fn new_namespaces_need_the_capability() {
        let without = profile(0);
        assert_eq!(of(&without, "clone")[0]["args"][0]["value"], 0x7e02_0000);
        assert_eq!(of(&without, "clone3")[0]["errnoRet"], 38);
        let with = profile(1 << 21);
        assert!(of(&with, "clone")[0].get("args").is_none());
        assert_eq!(of(&with, "clone3")[0]["action"], ALLOW);
        assert_eq!(of(&with, "clone").len(), 1);
        assert_eq!(of(&with, "mount").len(), 1);
        assert_eq!(of(&profile(1 << 18), "chroot").len(), 1);
    }

    #[test]
    fn every_capability_with_a_rule_is_one() {
        let all = Capabilities((1 << 41) - 1);
        assert!(WITH_CAPABILITY.iter().all(|(name, _)| all.has(name)));
    }
}
