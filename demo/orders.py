"""An ordinary Python program: reads orders, checks them, prices them concurrently, and writes a report.

It uses what programs use: a regular expression, dataclasses, an enum, generators, pattern matching, a context manager,
exceptions, closures, sorting with a key, and asyncio.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

ORDERS = """
17 alice  3 x lamp
18 bob    1 x chair, 4 x lamp
19 carol  twelve x lamp
20 alice  2 x table, 6 x chair
21 dave   1 x sofa
22 bob    10 x lamp, 1 x table
"""
PRICES = {"lamp": 19, "chair": 45, "table": 140}
ORDER = re.compile(r"(?P<number>\d+)\s+(?P<customer>\w+)\s+(?P<items>.+)")


class Size(enum.Enum):
    SMALL = 100
    MEDIUM = 500
    LARGE = 1_000_000

    @classmethod
    def of(cls, amount: int) -> Size:
        return next(size for size in cls if amount <= size.value)


class Refused(Exception):
    pass


@dataclass(order=True)
class Order:
    number: int
    customer: str = field(compare=False)
    items: Counter[str] = field(compare=False, default_factory=Counter)


@dataclass
class Log:
    lines: list[str] = field(default_factory=list)
    depth: int = 0

    @contextlib.contextmanager
    def section(self, title: str) -> Iterator[Log]:
        self.write(f"{title}:")
        self.depth += 1
        try:
            yield self
        finally:
            self.depth -= 1

    def write(self, line: str) -> None:
        self.lines.append("  " * self.depth + line)


def read(text: str, log: Log) -> Iterator[Order]:
    for line in filter(None, text.splitlines()):
        found = ORDER.fullmatch(line)
        if found is None:
            continue
        order = Order(int(found["number"]), found["customer"])
        try:
            for item in found["items"].split(", "):
                match item.split():
                    case [count, "x", name] if name in PRICES:
                        order.items[name] += int(count)
                    case [_, "x", name]:
                        raise Refused(f"{name} is not sold here")
        except (Refused, ValueError) as problem:
            log.write(f"order {order.number} refused: {type(problem).__name__}: {problem}")
        else:
            yield order


def discount(threshold: int, percent: int) -> Callable[[int], int]:
    def apply(amount: int) -> int:
        return amount * (100 - percent) // 100 if amount >= threshold else amount

    return apply


async def price(order: Order, rule: Callable[[int], int], done: dict[str, list[int]]) -> int:
    total = 0
    for name, count in order.items.items():
        await asyncio.sleep(0)
        total += PRICES[name] * count
    done[order.customer].append(rule(total))
    return rule(total)


async def price_all(orders: list[Order]) -> dict[str, list[int]]:
    done: dict[str, list[int]] = defaultdict(list)
    rule = discount(threshold=200, percent=5)
    await asyncio.gather(*(price(order, rule, done) for order in orders))
    return done


def report() -> str:
    log = Log()
    with log.section("reading"):
        orders = [order for order in read(ORDERS, log) if order.items]
        orders.sort(reverse=True)
    totals = asyncio.run(price_all(orders))
    with log.section("customers"):
        for customer, amounts in sorted(totals.items(), key=lambda entry: -sum(entry[1])):
            amount = sum(amounts)
            log.write(f"{customer:<6} {amount:>5}  {Size.of(amount).name.lower():<6} {'#' * (amount // 40)}")
    return "\n".join(log.lines)
