"""Problems around Java and ZooKeeper, each with what to do about it.

The classes say whose fault it is: `JavaProblem` is the machine's, `ServerProblem` the embedded
server's, `SessionProblem` the network's or the ensemble's, `RegistrationProblem` the caller's.
"""

from __future__ import annotations


class ZooKeeperProblem(Exception):  # noqa: N818 - what happened, not a kind of error
    """Base of every error of this package: `message` says what happened, `remedy` what to do."""

    def __init__(self, message: str, remedy: str) -> None:
        self.message = message
        self.remedy = remedy
        super().__init__(f"{message}\n    {remedy}")


class JavaProblem(ZooKeeperProblem):
    """Java cannot be used."""


class JavaMissing(JavaProblem):
    """There is no Java where Spark would look for it."""


class JavaTooOld(JavaProblem):
    """The Java that Spark would use is older than Spark accepts."""


class JavaBroken(JavaProblem):
    """There is a `java`, but it does not run or does not tell its version."""


class ServerProblem(ZooKeeperProblem):
    """The embedded server cannot be started, or died."""


class JarsMissing(ServerProblem):
    """pyspark, whose jars contain the server, is not installed."""


class PortTaken(ServerProblem):
    """Another process listens on the port."""


class DataFolderLocked(ServerProblem):
    """Another server works on the same data folder."""


class DataFolderUnusable(ServerProblem):
    """The data folder cannot be written to, or its contents cannot be read."""


class NoMemory(ServerProblem):
    """The machine has no memory left for the server."""


class ServerFailed(ServerProblem):
    """The server ended, or never answered, for a reason that only its log knows."""


class SessionProblem(ZooKeeperProblem):
    """There is no session with the ensemble."""


class EnsembleUnreachable(SessionProblem):
    """Nobody answered within the time limit."""


class SessionUnavailable(SessionProblem):
    """The session is suspended or lost; nothing may be decided until it is back (OR-7)."""


class AccessRefused(ZooKeeperProblem):
    """The znodes belong to somebody else than the client says that it is."""


class RegistrationProblem(ZooKeeperProblem):
    """A registration of producers was refused; nothing that was registered before has changed."""


class RegistrationDiffers(RegistrationProblem):
    """A partition has another set of producers already, which nobody has used yet."""


class RegistrationFrozen(RegistrationProblem):
    """A partition's set of producers has been looked up; later producers come too late."""
