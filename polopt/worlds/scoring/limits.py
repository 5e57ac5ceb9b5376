"""Restrictions of a worker process, enforced by the kernel.

Uses the standard library alone. On Linux: no more memory than allowed, no files written, made, moved or removed, no
network, no other processes started, signalled or read, no privileges gained. Reading files and computing remain. Other
systems enforce less: `confine` returns what is missing.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
import sys
from collections.abc import Iterator

GB = 2**30
PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2
CAPABILITIES = 0x20080522  # the version of the call
# These system calls have the same numbers on every architecture.
LANDLOCK_CREATE_RULESET, LANDLOCK_RESTRICT_SELF, LANDLOCK_MAKE_CHAR = 444, 446, 1 << 6
ALLOW, DENY, KILL = 0x7FFF0000, 0x00050000 | errno.EPERM, 0x80000000
NO_SUCH_CALL = 0x00050000 | errno.ENOSYS
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
CLONE_THREAD = 0x00010000
# The kernel's name of a machine's calls, and each call's number on x86-64 and on aarch64 (None where there is none).
MACHINES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}
FORBIDDEN: dict[str, tuple[int | None, int | None]] = {
    # Other processes.
    "execve": (59, 221),
    "execveat": (322, 281),
    "fork": (57, None),
    "vfork": (58, None),
    "kill": (62, 129),
    "tkill": (200, 130),
    "tgkill": (234, 131),
    "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240),
    "pidfd_open": (434, 434),
    "pidfd_send_signal": (424, 424),
    "pidfd_getfd": (438, 438),
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "setpriority": (141, 140),
    "sched_setaffinity": (203, 122),
    # The network, and shared memory.
    "socket": (41, 198),
    "socketpair": (53, 199),
    "connect": (42, 203),
    "bind": (49, 200),
    "shmget": (29, 194),
    "semget": (64, 190),
    "msgget": (68, 186),
    "mq_open": (240, 180),
    "memfd_create": (319, 279),
    # Files.
    "creat": (85, None),
    "mkdir": (83, None),
    "mkdirat": (258, 34),
    "mknod": (133, None),
    "mknodat": (259, 33),
    "link": (86, None),
    "linkat": (265, 37),
    "symlink": (88, None),
    "symlinkat": (266, 36),
    "rename": (82, None),
    "renameat": (264, 38),
    "renameat2": (316, 276),
    "unlink": (87, None),
    "unlinkat": (263, 35),
    "rmdir": (84, None),
    "truncate": (76, 45),
    "chmod": (90, None),
    "fchmod": (91, 52),
    "fchmodat": (268, 53),
    "fchmodat2": (452, 452),
    "chown": (92, None),
    "lchown": (94, None),
    "fchown": (93, 55),
    "fchownat": (260, 54),
    "utime": (132, None),
    "utimes": (235, None),
    "futimesat": (261, None),
    "utimensat": (280, 88),
    "setxattr": (188, 5),
    "lsetxattr": (189, 6),
    "fsetxattr": (190, 7),
    "removexattr": (197, 14),
    "lremovexattr": (198, 15),
    "fremovexattr": (199, 16),
    # The kernel itself.
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "unshare": (272, 97),
    "setns": (308, 268),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "keyctl": (250, 219),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "reboot": (169, 142),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "kexec_load": (246, 104),
    "swapon": (167, 224),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "sethostname": (170, 161),
    "open_by_handle_at": (304, 265),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
}
# Calls filtered by an argument: (numbers, argument index, bits, action if any of the bits is set, action if none is).
JUDGED = (
    ((2, None), 1, WRITES, DENY, ALLOW),  # open
    ((257, 56), 2, WRITES, DENY, ALLOW),  # openat
    ((56, 220), 0, CLONE_THREAD, ALLOW, DENY),  # clone: threads are allowed, processes are not
    ((302, 261), 0, 0xFFFFFFFF, DENY, ALLOW),  # prlimit64: of this process alone
)
# The C library has an older call to fall back on for each of these, which the filter can read.
FALL_BACK = ((435, 435), (437, 437))  # clone3, openat2


def confine(memory: float) -> list[str]:
    """Restricts this process, irrevocably, to what a scorer needs; `memory`: GB that may be allocated from here on.

    Returns the restrictions that this system does not have, each as the end of a sentence.
    """
    import resource

    missing = []
    for name, value in (("RLIMIT_FSIZE", 0), ("RLIMIT_NPROC", 0), ("RLIMIT_CORE", 0)):
        resource.setrlimit(getattr(resource, name), (value, value))
    limit = _address_space() + int(memory * GB)
    try:
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        bounded = sys.platform.startswith("linux")
    except (ValueError, OSError):
        bounded = False
    if not bounded:
        missing.append("memory is not limited")
    _no_capabilities()
    if not _no_calls():
        missing.append("files, the network and other processes are not closed to them")
    elif not _no_tracing():
        missing.append("they may read the memory of this user's processes")
    return missing


def allow_seconds(seconds: float) -> None:
    """Sets the kernel's limit on processor time to `seconds` more than this process has used so far."""
    import resource

    used = resource.getrusage(resource.RUSAGE_SELF)
    _, most = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (int(used.ru_utime + used.ru_stime + seconds) + 2, most))


def _address_space() -> int:
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return GB


def _no_capabilities() -> None:
    """Drops all capabilities, also of root, which keeps only its rights to the files that it owns."""
    if sys.platform.startswith("linux"):
        header, none = struct.pack("Ii", CAPABILITIES, 0), bytes(24)
        ctypes.CDLL(None).capset(ctypes.c_char_p(header), ctypes.c_char_p(none))


def _no_tracing() -> bool:
    """Enters a Landlock domain, whose processes cannot inspect processes outside; returns False if the kernel lacks
    Landlock."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    handled = ctypes.c_uint64(LANDLOCK_MAKE_CHAR)  # a domain must forbid something; no scorer makes device files
    rules = libc.syscall(LANDLOCK_CREATE_RULESET, ctypes.byref(handled), ctypes.c_size_t(8), ctypes.c_uint32(0))
    if rules < 0:
        return False
    entered = libc.syscall(LANDLOCK_RESTRICT_SELF, ctypes.c_int(rules), ctypes.c_uint32(0)) == 0
    os.close(rules)
    return entered


def _no_calls() -> bool:
    """Installs a seccomp filter against the calls above; returns False if the kernel does not accept it."""
    if not sys.platform.startswith("linux") or platform.machine() not in MACHINES or sys.maxsize < 2**32:
        return False
    architecture, column = MACHINES[platform.machine()]
    program = b"".join(_filter(architecture, column))
    code = ctypes.create_string_buffer(program, len(program))
    fprog = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(code))
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl.argtypes = [ctypes.c_int, *[ctypes.c_ulong] * 4]
    if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        return False
    address = ctypes.create_string_buffer(fprog, len(fprog))
    return bool(libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.addressof(address), 0, 0) == 0)


def _filter(architecture: int, column: int) -> Iterator[bytes]:
    """Yields the filter as instructions of the kernel's filter machine: load, compare, return."""

    def one(code: int, value: int, then: int = 0, otherwise: int = 0) -> bytes:
        return struct.pack("HBBI", code, then, otherwise, value)

    load, equal, any_bit, answer = 0x20, 0x15, 0x45, 0x06
    yield one(load, 4)  # the machine
    yield one(equal, architecture, 1, 0)
    yield one(answer, KILL)
    yield one(load, 0)  # the number of the call
    if column == 0:  # x32 calls: the same numbers with this bit
        yield one(any_bit, 0x40000000, 0, 1)
        yield one(answer, KILL)
    denied = [(numbers[column], DENY) for numbers in FORBIDDEN.values()]
    for number, what in [*denied, *((numbers[column], NO_SUCH_CALL) for numbers in FALL_BACK)]:
        if number is not None:
            yield one(equal, number, 0, 1)
            yield one(answer, what)
    for numbers, argument, bits, if_any, if_none in JUDGED:
        if (number := numbers[column]) is not None:
            yield one(equal, number, 0, 4)
            yield one(load, 16 + 8 * argument)  # the lower half: all of these are ints
            yield one(any_bit, bits, 0, 1)
            yield one(answer, if_any)
            yield one(answer, if_none)
    yield one(answer, ALLOW)
