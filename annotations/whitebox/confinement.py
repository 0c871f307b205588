"""Walls around a program, put up by Linux itself, in the process that then becomes the program.

`python -I -S confinement.py POLICY COMMAND...` closes, for itself and all that comes from it, and
then executes the command:

- files: nothing can be read or executed but what lies below the folders that the policy names,
  nothing written but below its scratch folder (Landlock);
- the network and every other socket, ways into other processes, changes of a file's mode, owner,
  times, flags and attributes, what happens in folders, mounts and namespaces, how other processes
  run, the machine's clock, name and devices (seccomp);
- signals to processes outside (Landlock, Linux 6.12).

No rights are needed for any of it. `open_ways` says what this machine cannot close. The standard
library is all that is imported. x86-64 and ARM.
"""

from __future__ import annotations

import ctypes
import functools
import json
import os
import platform
import struct
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, TypeAlias

_LIBC: Final = ctypes.CDLL(None, use_errno=True)
_PR_SET_NO_NEW_PRIVS: Final = 38
_PR_SET_SECCOMP: Final = 22
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446

_EXECUTE, _WRITE, _READ, _LIST = 1, 1 << 1, 1 << 2, 1 << 3
_DEVICES: Final = 1 << 6 | 1 << 11
"""Making devices."""
_LOOK: Final = _READ | _LIST
_ACCESS_BITS: Final = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}
"""Version of Landlock -> how many kinds of access to files it knows; later ones know as many."""
_TCP: Final = 3
"""Landlock's accesses to the network, from version 4: bind and connect."""
_OUTSIDE: Final = 3
"""Landlock's scopes, from version 6: abstract sockets and signals."""

# fmt: off
_DENIED: Final[Mapping[str, tuple[int, ...]]] = {
    "x86_64": (
        41,  # socket
        101, 310, 311, 312, 438,  # ptrace, process_vm_readv, process_vm_writev, kcmp, pidfd_getfd
        425, 426, 427, 298, 321, 323, 248, 249, 250,  # io_uring, perf, bpf, userfaultfd, keys
        155, 161, 165, 166, 272, 308, 428, 429, 430, 442,  # mounts and namespaces
        90, 91, 92, 93, 94, 132, 235, 260, 261, 268, 280, 452,  # mode, owner, times
        188, 189, 190, 197, 198, 199, 463, 466,  # attributes
        29, 30, 64, 68, 240,  # shared memory, semaphores and queues of System V; mq_open
        253, 254, 294, 300, 301, 303, 304,  # what happens in folders; files by their handles
        141, 142, 144, 251, 256, 279, 314, 440, 448,  # how processes run, and where
        103, 153, 159, 163, 164, 167, 168, 169, 170, 171, 172, 173, 175, 176, 179, 227, 246,
        305, 313, 320, 443,  # the machine: its log, clock, swap, names, ports, modules, quotas
    ),
    "aarch64": (
        198,
        117, 270, 271, 272, 438,
        425, 426, 427, 241, 280, 282, 217, 218, 219,
        41, 51, 40, 39, 97, 268, 428, 429, 430, 442,
        52, 53, 54, 55, 88, 452,
        5, 6, 7, 14, 15, 16, 463, 466,
        194, 196, 190, 186, 180,
        26, 27, 262, 263, 264, 265,
        118, 119, 140, 30, 238, 239, 274, 440, 448,
        58, 60, 89, 104, 105, 106, 112, 116, 142, 161, 162, 170, 171, 224, 225, 266, 273, 294, 443,
    ),
}
"""Machine -> the system calls that are refused (EACCES)."""
_ARCHITECTURE: Final = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_ALONE: Final = {"x86_64": (302, 203), "aarch64": (261, 122)}
"""Calls that may be made for this process alone: prlimit, sched_setaffinity."""
_CLONE: Final = {"x86_64": 56, "aarch64": 220}
_CLONE3: Final = 435
_NAMESPACES: Final = 0x7E020000
_IOCTL: Final = {"x86_64": 16, "aarch64": 29}
_COMMANDS: Final = (
    0x40086602, 0x40046602, 0x401C5820,  # flags of a file
    0x5412, 0x541C,  # what seems to be typed
    0xC0189436,  # sharing what two files have
)
"""Commands to files and devices that are refused."""
# fmt: on


def main() -> None:
    """Put up the walls and become the command."""
    policy, command = json.loads(sys.argv[1]), sys.argv[2:]
    confine(policy)
    os.execv(command[0], command)


def confine(policy: Mapping[str, Any]) -> None:
    """Close what can be closed, for this process and all that comes from it.

    Args:
        policy: `readable`: files and folders; `listed`: folders of which only the names are seen;
            `writable`: folders.
    """
    _LIBC.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    if landlock_version():
        _close_files(policy["readable"], policy["listed"], policy["writable"])
    if _seccomp():
        _close_calls()


@functools.cache
def landlock_version() -> int:
    """The version of Landlock that this kernel has; 0 for none."""
    if sys.platform != "linux":
        return 0
    return max(0, int(_LIBC.syscall(_CREATE_RULESET, None, 0, 1)))


def _seccomp() -> bool:
    return platform.machine() in _DENIED and Path("/proc/sys/kernel/seccomp").exists()


def open_ways() -> tuple[str, ...]:
    """The things that code can still do on this machine, and that walls should prevent."""
    version = landlock_version()
    ways = []
    if version < 3:
        ways.append("read and write files" if version < 1 else "shorten files")
    if not _seccomp():
        ways.append("change the mode of files and look into other processes")
        ways.append("use the network" if version < 4 else "use the network but TCP")
    if version < 6:
        ways.append("send signals to other processes of the user")
    return tuple(ways)


# ---- files


def _close_files(readable: Iterable[str], listed: Iterable[str], writable: Iterable[str]) -> None:
    version = landlock_version()
    every = (1 << _ACCESS_BITS[min(version, 5)]) - 1
    attributes = struct.pack(
        "QQQ", every, _TCP if version >= 4 else 0, _OUTSIDE if version >= 6 else 0
    )
    size = 24 if version >= 6 else 16 if version >= 4 else 8
    ruleset = _call(_CREATE_RULESET, ctypes.create_string_buffer(attributes), size, 0)
    for path in readable:
        _allow(ruleset, path, _EXECUTE | _LOOK)
    for path in listed:
        _allow(ruleset, path, _LIST)
    for path in writable:
        _allow(ruleset, path, every & ~(_EXECUTE | _DEVICES))
    for path in ("/dev/null", "/dev/zero", "/dev/urandom", "/dev/random"):
        _allow(ruleset, path, _READ | _WRITE)
    _call(_RESTRICT_SELF, ruleset, 0)
    os.close(ruleset)


def _allow(ruleset: int, path: str, access: int) -> None:
    """Allow an access below a path; a symbolic link allows nothing, wherever it leads."""
    with suppress(OSError):
        place = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            mode = os.fstat(place).st_mode
            if (mode & 0o170000) == 0o120000:
                return
            if (mode & 0o170000) != 0o040000:
                access &= _EXECUTE | _READ | _WRITE
            rule = ctypes.create_string_buffer(struct.pack("=Qi", access, place))
            _call(_ADD_RULE, ruleset, 1, rule, 0)
        finally:
            os.close(place)


def _call(number: int, *arguments: Any) -> int:
    result = int(_LIBC.syscall(number, *arguments))
    if result < 0:
        raise OSError(ctypes.get_errno(), "Landlock refuses its rules")
    return result


# ---- system calls


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))


def _close_calls() -> None:
    """Refuse system calls: a program for the kernel, in the words of its packet filter."""
    machine = platform.machine()
    refused = 0x00050000 | 13  # SECCOMP_RET_ERRNO, EACCES
    denied = _DENIED[machine]
    steps: list[_Step] = [
        (0x20, 0, 0, 4),  # load the architecture
        (0x15, 1, 0, _ARCHITECTURE[machine]),
        (0x06, 0, 0, refused),
        (0x20, 0, 0, 0),  # load the number of the call
        (0x35, 0, 1, 0x40000000),  # the other calling convention of x86-64
        (0x06, 0, 0, refused),
    ]
    for number in _ALONE[machine]:
        steps += _argument(number, 0, [(0x15, 1, 0, 0), (0x06, 0, 0, refused)])
    steps += _argument(_CLONE[machine], 0, [(0x45, 0, 1, _NAMESPACES), (0x06, 0, 0, refused)])
    # Its flags are in memory, where no filter looks: the C library takes the older call instead.
    steps += [(0x15, 0, 1, _CLONE3), (0x06, 0, 0, 0x00050000 | 38)]
    commands: list[_Step] = []
    for command in _COMMANDS:
        commands += [(0x15, 0, 1, command), (0x06, 0, 0, refused)]
    steps += _argument(_IOCTL[machine], 1, commands)
    for number in denied:
        steps += [(0x15, 0, 1, number), (0x06, 0, 0, refused)]
    steps.append((0x06, 0, 0, 0x7FFF0000))  # SECCOMP_RET_ALLOW
    text = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *step) for step in steps))
    program = _Program(len(steps), ctypes.cast(text, ctypes.c_void_p))
    if _LIBC.prctl(_PR_SET_SECCOMP, 2, ctypes.byref(program), 0, 0):
        raise OSError(ctypes.get_errno(), "seccomp refuses its filter")


_Step: TypeAlias = tuple[int, int, int, int]


def _argument(number: int, place: int, steps: list[_Step]) -> list[_Step]:
    """Steps that look at an argument of a call, and then load the number of the call again."""
    inside = [(0x20, 0, 0, 16 + 8 * place), *steps]
    return [(0x15, 0, len(inside), number), *inside, (0x20, 0, 0, 0)]


if __name__ == "__main__":
    main()
