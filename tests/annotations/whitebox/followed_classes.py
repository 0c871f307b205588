"""A script of objects whose values nobody knows without running it: every query counts."""

import platform
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import NamedTuple

from pydantic import BaseModel
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
s = spark.readStream.schema("k STRING, v INT").json("/in/s")


def write(df, name):
    df.writeStream.queryName(name).outputMode("update").format("console").start()


def counted(yes):
    return s.groupBy("k").count() if yes else s


class Switch:
    on = False

    def enable(self):
        self.on = True

    def __call__(self):
        self.on = True


def turn(switch):
    switch.on = True


a = Switch()
t1, t2, t3, t4, t5 = Switch(), Switch(), Switch(), Switch(), Switch()
held = {"x": t3}
every = [t5]


def turn_global():
    for x in every:
        x.enable()


if platform.node():
    t1.enable()
    t2.on = True
    held["x"].enable()
    turn(t4)
    turn_global()
write(counted(t1.on), "t1")
write(counted(t2.on), "t2")
write(counted(t3.on), "t3")
write(counted(t4.on), "t4")
write(counted(t5.on), "t5")


@dataclass(frozen=True)
class Config:
    n: int = 1


write(counted(Config(1) == Config(1)), "equal")
write(counted(Config() in [Config()]), "member")
write(counted(str(Config()) == "Config(n=1)"), "text")


class Falsy:
    def __len__(self):
        return 0


write(counted(not Falsy()), "falsy")


class Lazy:
    def __getattr__(self, name):
        return True


write(counted(Lazy().anything), "lazy")


class Counter:
    n = 0

    @property
    def twice(self):
        return self.n * 2

    @twice.setter
    def twice(self, value):
        self.n = value


c = Counter()
c.n += 1
write(counted(c.n == 1), "added")
c.twice = 5
write(counted(c.n == 5), "setter")

flag = False


def set_flag():
    global flag
    flag = True


set_flag()
write(counted(flag), "global")


class Base:
    def on(self):
        return False


class Left(Base):
    pass


class Right(Base):
    def on(self):
        return True


class Both(Left, Right):
    pass


write(counted(Both().on()), "diamond")


class Meta(type):
    def __call__(cls, *a):
        return True


class Made(metaclass=Meta):
    pass


write(counted(Made() is True), "meta")


def outer():
    n = 0

    def inner():
        nonlocal n
        n += 1

    inner()
    return n


write(counted(outer() == 1), "nonlocal")
while platform.node() and not a.on:
    a.enable()
write(counted(a.on), "while")


def deco(cls):
    cls.on = True
    return cls


@deco
class Decorated:
    on = False


write(counted(Decorated.on), "decorated")


class Slotted:
    def __init__(self):
        self.on = True

    on = False


write(counted(Slotted().on), "setattr")
x = Switch()
x.__dict__["on"] = True
write(counted(x.on), "dict")
y = Switch()
vars(y)["on"] = True
write(counted(y.on), "vars")
w = Switch()
del w


class Typed:
    on = False

    def enable(self):
        type(self).on = True


Typed().enable()
write(counted(Typed.on), "typed")


class Cls:
    on = False

    @classmethod
    def enable(cls):
        cls.on = True


Cls.enable()
write(counted(Cls.on), "classmethod")
write(counted(len(platform.node()) >= 0), "length")


class Level(str, Enum):  # noqa: UP042
    LOW = "low"
    SAME = "low"  # noqa: PIE796
    HIGH = "high"
    FIRST = auto()

    @property
    def on(self):
        return self is not Level.LOW


write(counted(Level("high").on), "value")
write(counted(Level.SAME is Level.LOW), "alias")
write(counted(Level["HIGH"] == Level.HIGH), "by name")
write(counted(Level.LOW == "low"), "mixed in")
last = False
for level in Level:
    last = level.on
write(counted(last), "last")


class Pair(NamedTuple):
    first: bool
    second: bool = True


_, second = Pair(False)
write(counted(second), "unpacked")
write(counted(replace(Config(), n=2).n == 2), "replaced")


class Settings(BaseModel):
    on: bool = False


write(counted(Settings().on), "by default")


class Registry:
    on = False

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__()
        Registry.on = kwargs.get("on", True)


class Registered(Registry, on=True):
    pass


write(counted(Registry.on), "subclass")
