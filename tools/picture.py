"""Draws docs/images/NAME.svg from docs/images/NAME.txt, whose head explains the format: `make picture`.

picture.py [--check]      --check writes nothing and fails where a picture is not up to date
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from html import escape
from pathlib import Path

IMAGES = Path(__file__).resolve().parent.parent / "docs" / "images"
WIDTH, HEIGHT, GAP_X, GAP_Y, MARGIN = 168, 74, 52, 62, 24
COLOURS = {"plain": "#eceff1", "hot": "#c8e6c9", "cold": "#bbdefb", "slow": "#ffe0b2"}
LEGEND = {"hot": "on every call", "cold": "on a miss", "slow": "on a graph break"}


@dataclass
class Box:
    column: int
    row: int
    kind: str
    lines: list[str]

    def side(self, side: str) -> tuple[int, int]:
        x, y = MARGIN + self.column * (WIDTH + GAP_X), MARGIN + self.row * (HEIGHT + GAP_Y)
        return {
            "left": (x, y + HEIGHT // 2),
            "right": (x + WIDTH, y + HEIGHT // 2),
            "top": (x + WIDTH // 2, y),
            "bottom": (x + WIDTH // 2, y + HEIGHT),
        }[side]


def facing(a: Box, b: Box) -> tuple[str, str]:
    if a.row != b.row:
        return ("bottom", "top") if a.row < b.row else ("top", "bottom")
    return ("right", "left") if a.column < b.column else ("left", "right")


def parse(text: str) -> tuple[dict[str, Box], list[tuple[str, str, str]]]:
    boxes, edges = {}, []
    for line in text.splitlines():
        word, _, rest = line.partition(" ")
        if word == "box":
            head, *lines = rest.split("|")
            name, column, row, kind = head.split()
            boxes[name] = Box(int(column), int(row), kind, [one.strip() for one in lines])
        elif word == "edge":
            start, end, *label = rest.split(None, 2)
            edges.append((start, end, label[0] if label else ""))
    return boxes, edges


def draw_box(box: Box) -> list[str]:
    x, y = MARGIN + box.column * (WIDTH + GAP_X), MARGIN + box.row * (HEIGHT + GAP_Y)
    style = f'fill="{COLOURS[box.kind]}" stroke="#455a64"'
    out = [f'<rect x="{x}" y="{y}" width="{WIDTH}" height="{HEIGHT}" rx="8" {style}/>']
    top = y + (HEIGHT - 18 * len(box.lines)) // 2 + 14
    for i, line in enumerate(box.lines):
        font = 'font-weight="bold" font-size="14"' if i == 0 else 'font-size="12"'
        out.append(f'<text x="{x + WIDTH // 2}" y="{top + 18 * i}" text-anchor="middle" {font}>{escape(line)}</text>')
    return out


def draw_edge(boxes: dict[str, Box], start: str, end: str, label: str) -> list[str]:
    (a, _, side_a), (b, _, side_b) = start.partition("."), end.partition(".")
    default_a, default_b = facing(boxes[a], boxes[b])
    side_a, side_b = side_a or default_a, side_b or default_b
    (x1, y1), (x2, y2) = boxes[a].side(side_a), boxes[b].side(side_b)
    if side_a == side_b:  # around the outside, where both are left or right
        out = -26 if side_a == "left" else 26
        path = f"M {x1} {y1} H {x1 + out} V {y2} H {x2}"
        at, anchor = (x1 + out + (-6 if out < 0 else 6), (y1 + y2) // 2), "end" if out < 0 else "start"
    elif x1 == x2 or y1 == y2:
        path = f"M {x1} {y1} L {x2} {y2}"
        at = ((x1 + x2) // 2, y1 - 6) if y1 == y2 else (x1 + 6, (y1 + y2) // 2 + 4)
        anchor = "middle" if y1 == y2 else "start"
    else:
        middle = (y1 + y2) // 2
        path = f"M {x1} {y1} V {middle} H {x2} V {y2}"
        at, anchor = ((x1 + x2) // 2, middle - 6), "middle"
    lines = [f'<path d="{path}" fill="none" stroke="#455a64" stroke-width="1.5" marker-end="url(#arrow)"/>']
    if label:
        style = 'font-size="12" font-style="italic"'
        lines.append(f'<text x="{at[0]}" y="{at[1]}" text-anchor="{anchor}" {style}>{escape(label)}</text>')
    return lines


def draw(text: str) -> str:
    boxes, edges = parse(text)
    columns, rows = 1 + max(box.column for box in boxes.values()), 1 + max(box.row for box in boxes.values())
    width = 2 * MARGIN + columns * (WIDTH + GAP_X) - GAP_X
    height = 2 * MARGIN + rows * (HEIGHT + GAP_Y) - GAP_Y + 24
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" fill="#263238">',
        '<defs><marker id="arrow" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
        '<path d="M 0 0 L 8 4 L 0 8 z" fill="#455a64"/></marker></defs>',
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
    ]
    for edge in edges:
        out += draw_edge(boxes, *edge)
    for box in boxes.values():
        out += draw_box(box)
    for i, (kind, meaning) in enumerate(LEGEND.items()):
        x, y = MARGIN + i * 150, height - 24
        out.append(f'<rect x="{x}" y="{y}" width="14" height="14" fill="{COLOURS[kind]}" stroke="#455a64"/>')
        out.append(f'<text x="{x + 20}" y="{y + 12}" font-size="12">{meaning}</text>')
    return "\n".join([*out, "</svg>"]) + "\n"


def main() -> None:
    for source in sorted(IMAGES.glob("*.txt")):
        target = source.with_suffix(".svg")
        drawn = draw(source.read_text())
        if "--check" in sys.argv:
            if not target.exists() or target.read_text() != drawn:
                sys.exit(f"{target.name} is not up to date with {source.name}: `make picture` draws it")
        else:
            target.write_text(drawn)


if __name__ == "__main__":
    main()
