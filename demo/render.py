"""Renders one frame of the demo's film: a chrome ball with a ring of glossy ones, ray traced in plain Python.

Run as a frame of the demo's job: `python demo/render.py --frame 7 --of 24 --out PICTURE.png`. About two seconds on
one core. Over the frames the ring turns once and the camera sways, so the film loops.
"""

from __future__ import annotations

import argparse
import sys
import time
from math import cos, pi, sin, sqrt
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from demo import png

WIDTH, HEIGHT = 320, 180
EDGE = 0.06  # contrast to a neighbour above which a pixel is sampled again
Colour = tuple[float, float, float]
# Centre x, y, z, radius, red, green, blue, mirror (0 matt to 1 chrome).
Ball = tuple[float, float, float, float, float, float, float, float]

SUN = (-0.52, 0.62, -0.59)  # unit vector towards it
PALETTE: list[Colour] = [
    (0.95, 0.26, 0.21), (0.98, 0.60, 0.12), (0.99, 0.87, 0.24),
    (0.24, 0.73, 0.42), (0.13, 0.55, 0.93), (0.56, 0.27, 0.80),
]  # fmt: skip


def scene(turn: float) -> list[Ball]:
    """The balls at `turn` (0 to 1 of the film)."""
    balls: list[Ball] = [(0.0, 1.0, 0.0, 1.0, 0.95, 0.95, 0.97, 0.82)]
    for number, (red, green, blue) in enumerate(PALETTE):
        angle = 2 * pi * (turn + number / len(PALETTE))
        hop = abs(sin(2 * pi * turn * 2 + number * pi / 3))
        balls.append((1.95 * cos(angle), 0.42 + 0.55 * hop, 1.95 * sin(angle), 0.42, red, green, blue, 0.18))
    return balls


def sky(dx: float, dy: float, dz: float) -> Colour:
    """Evening sky in direction d: warm at the horizon, deep blue above, and the sun's glow."""
    height = max(dy, 0.0) ** 0.5
    glow = max(dx * SUN[0] + dy * SUN[1] + dz * SUN[2], 0.0)
    flare = 0.9 * glow**200 + 0.18 * glow**8
    return (
        0.98 + (0.10 - 0.98) * height + flare,
        0.72 + (0.20 - 0.72) * height + flare * 0.85,
        0.55 + (0.47 - 0.55) * height + flare * 0.6,
    )


def shadowed(balls: list[Ball], x: float, y: float, z: float) -> bool:
    """Whether something stands between the point and the sun."""
    sx, sy, sz = SUN
    for cx, cy, cz, radius, *_ in balls:
        lx, ly, lz = cx - x, cy - y, cz - z
        along = lx * sx + ly * sy + lz * sz
        if along > 1e-3 and lx * lx + ly * ly + lz * lz - along * along < radius * radius:
            return True
    return False


def trace(
    balls: list[Ball], ox: float, oy: float, oz: float, dx: float, dy: float, dz: float, depth: int = 2
) -> Colour:
    """Light that arrives at o from the unit direction d, following at most `depth` mirrors."""
    nearest, hit = 1e9, None
    for ball in balls:
        lx, ly, lz = ball[0] - ox, ball[1] - oy, ball[2] - oz
        along = lx * dx + ly * dy + lz * dz
        if along > 0.0:
            inside = ball[3] * ball[3] - (lx * lx + ly * ly + lz * lz - along * along)
            if inside > 0.0:
                distance = along - sqrt(inside)
                if 1e-3 < distance < nearest:
                    nearest, hit = distance, ball
    if dy < -1e-4 and -oy / dy < nearest:
        return floor(balls, ox, oz, -oy / dy, dx, dy, dz, depth)
    if hit is None:
        return sky(dx, dy, dz)

    x, y, z = ox + dx * nearest, oy + dy * nearest, oz + dz * nearest
    nx, ny, nz = (x - hit[0]) / hit[3], (y - hit[1]) / hit[3], (z - hit[2]) / hit[3]
    facing = dx * nx + dy * ny + dz * nz
    rx, ry, rz = dx - 2 * facing * nx, dy - 2 * facing * ny, dz - 2 * facing * nz
    lit = nx * SUN[0] + ny * SUN[1] + nz * SUN[2]
    shine = 0.0
    if lit > 0.0:
        if shadowed(balls, x, y, z):
            lit = 0.0
        else:
            shine = 0.9 * max(rx * SUN[0] + ry * SUN[1] + rz * SUN[2], 0.0) ** 60
    else:
        lit = 0.0
    light = 0.34 + 0.16 * ny + 0.80 * lit
    red, green, blue = hit[4] * light, hit[5] * light, hit[6] * light
    if depth:
        mirror = hit[7] + (1.0 - hit[7]) * 0.6 * (1.0 + facing) ** 4
        mr, mg, mb = trace(balls, x, y, z, rx, ry, rz, depth - 1)
        red += (mr * hit[4] - red) * mirror
        green += (mg * hit[5] - green) * mirror
        blue += (mb * hit[6] - blue) * mirror
    return red + shine, green + shine * 0.95, blue + shine * 0.85


def floor(
    balls: list[Ball], ox: float, oz: float, distance: float, dx: float, dy: float, dz: float, depth: int
) -> Colour:
    """The checkered floor, a little polished, that fades into the horizon."""
    x, z = ox + dx * distance, oz + dz * distance
    tone = 0.82 if (int(x * 0.9 + 1e4) + int(z * 0.9 + 1e4)) & 1 else 0.24
    light = 0.42 if shadowed(balls, x, 0.0, z) else 1.0
    red, green, blue = tone * light, tone * light * 0.96, tone * light * 0.94
    if depth and distance < 14.0:
        mr, mg, mb = trace(balls, x, 0.0, z, dx, -dy, dz, depth - 1)
        mirror = 0.12 + 0.35 * (1.0 + dy) ** 4
        red, green, blue = red + (mr - red) * mirror, green + (mg - green) * mirror, blue + (mb - blue) * mirror
    haze = 1.0 - 1.0 / (1.0 + (distance / 16.0) ** 3)
    hr, hg, hb = sky(dx, 0.0, dz)
    return red + (hr - red) * haze, green + (hg - green) * haze, blue + (hb - blue) * haze


class Camera:
    """A pinhole that looks at the ball in the middle."""

    def __init__(self, turn: float) -> None:
        sway = 0.45 * sin(2 * pi * turn)
        self.x, self.y, self.z = 5.6 * sin(sway), 2.15 + 0.25 * cos(2 * pi * turn), -5.6 * cos(sway)
        fx, fy, fz = -self.x, 0.86 - self.y, -self.z
        size = sqrt(fx * fx + fy * fy + fz * fz)
        self.fx, self.fy, self.fz = fx / size, fy / size, fz / size
        flat = sqrt(self.fx**2 + self.fz**2)
        self.rx, self.rz = self.fz / flat, -self.fx / flat
        self.ux, self.uy, self.uz = -self.fx * self.fy / flat, flat, -self.fz * self.fy / flat

    def look(self, balls: list[Ball], column: float, row: float) -> Colour:
        """The light at a point of the picture, in pixels from the upper left corner."""
        across = (column - WIDTH / 2) / HEIGHT * 1.02
        up = (HEIGHT / 2 - row) / HEIGHT * 1.02
        dx = self.fx + across * self.rx + up * self.ux
        dy = self.fy + up * self.uy
        dz = self.fz + across * self.rz + up * self.uz
        size = sqrt(dx * dx + dy * dy + dz * dz)
        return trace(balls, self.x, self.y, self.z, dx / size, dy / size, dz / size)


def render(frame: int, frames: int) -> list[bytes]:
    """The picture of `frame` (1 to `frames`) as rows of RGB bytes."""
    turn = (frame - 1) / frames
    balls, camera = scene(turn), Camera(turn)
    picture = [[camera.look(balls, column + 0.5, row + 0.5) for column in range(WIDTH)] for row in range(HEIGHT)]
    smooth = [_smooth(picture, balls, camera, row) for row in range(HEIGHT)]
    return [bytes(_byte(value) for colour in row for value in colour) for row in smooth]


def _smooth(picture: list[list[Colour]], balls: list[Ball], camera: Camera, row: int) -> list[Colour]:
    """A row with its edges sampled again, three points more a pixel."""
    here, below = picture[row], picture[min(row + 1, HEIGHT - 1)]
    above = picture[max(row - 1, 0)]
    smooth = []
    for column, (red, green, blue) in enumerate(here):
        near = (here[column - 1], here[min(column + 1, WIDTH - 1)], above[column], below[column])
        if any(abs(red - r) + abs(green - g) + abs(blue - b) > EDGE * 3 for r, g, b in near):
            points = ((0.2, 0.35), (0.8, 0.2), (0.35, 0.8), (0.8, 0.75))
            more = [camera.look(balls, column + right, row + down) for right, down in points]
            red = (min(red, 1.2) + sum(min(c[0], 1.2) for c in more)) / 5
            green = (min(green, 1.2) + sum(min(c[1], 1.2) for c in more)) / 5
            blue = (min(blue, 1.2) + sum(min(c[2], 1.2) for c in more)) / 5
        smooth.append((red, green, blue))
    return smooth


def _byte(value: float) -> int:
    return int(255.0 * min(max(value, 0.0), 1.0) ** 0.8 + 0.5)


def main() -> None:
    parser = argparse.ArgumentParser(description="Render one frame of the demo's film.")
    parser.add_argument("--frame", type=int, required=True, help="number of the frame, from 1")
    parser.add_argument("--of", type=int, required=True, help="how many frames the film has")
    parser.add_argument("--out", type=Path, required=True, help="the PNG file to write")
    options = parser.parse_args()
    started = time.monotonic()
    png.write(options.out, render(options.frame, options.of))
    print(f"{options.out.name}: {WIDTH} x {HEIGHT} in {time.monotonic() - started:.1f} s")


if __name__ == "__main__":
    main()
