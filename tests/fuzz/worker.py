"""Child processes that judge programs: a crash, a hang or a leak of one program costs one child."""

from __future__ import annotations

import gc
import os
import pickle
import select
import signal
import struct
import threading
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from .programs import source_of
from .world import RandomProgram

from frontends import FrontEnd  # isort: skip - found by way of .world
from harness import Record, compare, the_frontend  # isort: skip

PROGRAMS_PER_CHILD = 300
FORKING = threading.Lock()
OPEN_ENDS: set[int] = set()  # of pipes to children, in this process
EAGER_SECONDS = 5  # of the processor's time, for a program that takes milliseconds


@dataclass
class Answer:
    """What became of a program."""

    status: str  # ok, invalid, wrong, crash, hang
    lines: list[str] = field(default_factory=list)
    calls: int = 0
    hits: int = 0
    eager: int = 0
    breaks: dict[str, int] = field(default_factory=dict)  # why calls were not captured

    @property
    def failed(self) -> bool:
        return self.status in ("wrong", "crash", "hang")


class Endless(BaseException):
    """The program itself does not end, or not soon."""


def clean_run(program: RandomProgram, frontend: FrontEnd | None, **how: bool) -> Record:
    """What an earlier run has left in cycles (open generators that print, or set a mode, when they end) ends before this one."""
    gc.collect()
    return program.run(frontend, **how)


def run_eagerly(program: RandomProgram) -> Record:
    """Random programs may loop for ever: that is no hang of ours."""
    ended = False

    def stop(number: int, frame: Any) -> None:
        nonlocal ended
        ended = True
        raise Endless

    old = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, EAGER_SECONDS, 1)
    try:
        record = clean_run(program, None)
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, old)
    if ended:
        raise Endless
    return record


def judge(source: str, name: str, frontend: FrontEnd, thorough: bool) -> Answer:
    """Compiled against eager: each call looked at, entries used again with nothing looked at, and (thorough) a spy as backend."""
    try:
        program = RandomProgram(source, name)
        wanted = run_eagerly(program)
    except (Exception, Endless) as error:  # a program that shrinking has broken
        return Answer("invalid", [repr(error)])
    if wanted.ended:
        return Answer("invalid", [wanted.ended])
    frontend.reset()
    first = clean_run(program, frontend)
    lines = [f"compiled: {line}" for line in compare(wanted, first)]
    lines += program.bugs(first) if frontend.counts else []
    if not lines:
        late = clean_run(program, None, late=True)
        again = clean_run(program, frontend, late=True)
        lines += [f"compiled, entries used again: {line}" for line in compare(late, again)]
    if thorough and not lines:
        frontend.reset()
        spied = clean_run(program, frontend, spying=True)
        lines += [f"with a spy: {line}" for line in compare(wanted, spied)]
        lines += [f"written while tracing: {line}" for line in spied.written]
    frontend.reset()
    changes = [one.change for one in first.expectations]
    counts = {name: sum(change.get(name, 0) for change in changes) for name in ("hits", "eager")}
    breaks: Counter[str] = Counter()
    for change in changes:
        breaks.update(change["breaks"])
    return Answer("wrong" if lines else "ok", lines, len(changes), **counts, breaks=dict(breaks))


def read_exactly(fd: int, count: int) -> bytes:
    parts = b""
    while len(parts) < count:
        part = os.read(fd, count - len(parts))
        if not part:
            raise EOFError
        parts += part
    return parts


def send(fd: int, message: Any) -> None:
    data = pickle.dumps(message)
    data = struct.pack("<I", len(data)) + data
    while data:
        data = data[os.write(fd, data) :]


def receive(fd: int) -> Any:
    (count,) = struct.unpack("<I", read_exactly(fd, 4))
    return pickle.loads(read_exactly(fd, count))


class Worker:
    """A child that judges one program after the other."""

    def __init__(self, frontend: str, size: int, kind: str, timeout: float = 60.0) -> None:
        self.frontend, self.size, self.kind, self.timeout = frontend, size, kind, timeout
        self.child = 0
        self.served = 0

    def start(self) -> None:
        with FORKING:
            self.fork()

    def fork(self) -> None:
        the_frontend(self.frontend)  # imports once, here
        down_read, down_write = os.pipe()
        up_read, up_write = os.pipe()
        OPEN_ENDS.update((down_write, up_read))
        self.child = os.fork()
        if self.child == 0:
            # The ends of other workers' pipes too: a child whose pipe somebody else holds open never sees its end.
            for end in OPEN_ENDS:
                os.close(end)
            status = 1
            try:
                self.serve(down_read, up_write)
                status = 0
            except (EOFError, BrokenPipeError, KeyboardInterrupt):
                status = 0
            finally:
                os._exit(status)
        os.close(down_read)
        os.close(up_write)
        self.to_child, self.from_child = down_write, up_read
        self.served = 0

    def serve(self, reader: int, writer: int) -> None:
        frontend = the_frontend(self.frontend)
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 2)  # what a crash says is said by its signal
        gc.disable()  # it would run at other moments in a compiled call
        while True:
            number, source, thorough = receive(reader)
            text = source if source is not None else source_of(number, self.size, self.kind)
            if not frontend.draws_all:
                text = text.replace("nn.Dropout(0.5)", "nn.Identity()").replace("torch.rand(2)", "torch.ones(2)")
            send(writer, judge(text, f"program {number}", frontend, thorough))
            gc.collect()
            gc.freeze()  # what is loaded and kept is not gone through again

    def stop(self) -> int:
        if not self.child:
            return 0
        with FORKING:
            for end in (self.to_child, self.from_child):
                OPEN_ENDS.discard(end)
                os.close(end)
        _, status = os.waitpid(self.child, 0)
        self.child = 0
        return status

    def judge(self, number: int, source: str | None = None, thorough: bool = True) -> Answer:
        """Judges the program with this number, or this source."""
        if not self.child:
            self.start()
        try:
            send(self.to_child, (number, source, thorough))
            ready, _, _ = select.select([self.from_child], [], [], self.timeout)
            if not ready:
                os.kill(self.child, signal.SIGKILL)
                self.stop()
                return Answer("hang", [f"no answer in {self.timeout:.0f} s"])
            answer = receive(self.from_child)
        except (EOFError, BrokenPipeError):
            status = self.stop()
            words = (
                signal.Signals(os.WTERMSIG(status)).name
                if os.WIFSIGNALED(status)
                else f"status {os.WEXITSTATUS(status)}"
            )
            return Answer("crash", [f"the process died: {words}"])
        self.served += 1
        if self.served >= PROGRAMS_PER_CHILD:
            self.stop()
        return answer
