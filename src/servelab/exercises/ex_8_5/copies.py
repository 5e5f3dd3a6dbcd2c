"""8-5d to 8-5f: the least time that copies take, the bandwidth that they need, and what a second buffer changes.

In wrong answers, n layers of s bytes are copied in each of z steps, over a link of g GB/s or within t seconds.
"""

from servelab import catalog, offload
from servelab.exercises.ex_8_5.room import BOOK, OTHER_LAYER_BYTES
from servelab.exercises.part import Choice, Part, Wrong
from servelab.units import GB, GIB, MIB

LINKS = tuple(round(catalog.link(name).bandwidth / GB) for name in ("pcie5-x16", "nvlink-c2c"))
STEPS = 255  # after the first of 256 output tokens
BOTH_WAYS = "the link's figure is for one direction, and weights go one way only."


def floor_s(layers, layer_bytes, steps, gb_per_s):
    return steps * offload.copy_s(layers * layer_bytes, gb_per_s * GB)


def needed_gb_per_s(layers, layer_bytes, steps, seconds):
    return offload.min_bandwidth(layers * layer_bytes, steps, seconds) / GB


def draw_layers(random):
    return random.randint(2, 80), random.choice(OTHER_LAYER_BYTES), random.randint(2, 1000)


def draw_floor(random):
    return *draw_layers(random), random.choice([16, 25.5, 32, 100, 128, 900])


def draw_needed(random):
    return *draw_layers(random), round(random.uniform(0.2, 60), 1)


def mib_as_mb(num_bytes):
    return num_bytes / MIB * 10**6


FLOOR = Part(
    id="8-5d",
    title="The least time that the copies take",
    returns="one number, in seconds",
    expected=floor_s,
    book=tuple((*BOOK, steps, link) for link in LINKS for steps in (1, STEPS)),
    others=((1, GB, 1, 1), (2, GB, 1, 1), (2, GB, 3, 1), (1, GB, 2, 4), (3, 10 * MIB, 1, 2), (2, 10 * MIB, 10, 1)),
    draw=draw_floor,
    wrong=(
        Wrong("GiB/s for GB/s", lambda n, s, z, g: floor_s(n, s, z, g) * GB / GIB,
              "your link is too fast: it moves GB, 10**9 bytes, not GiB."),
        Wrong("MB for MiB", lambda n, s, z, g: mib_as_mb(floor_s(n, s, z, g)),
              "you take the layers' MiB for MB. Use the bytes: they need no conversion."),
        Wrong("Gbit/s for GB/s", lambda n, s, z, g: 8 * floor_s(n, s, z, g),
              "eight times too long: the link's figure is in bytes, not bits."),
        Wrong("half of the link", lambda n, s, z, g: 2 * floor_s(n, s, z, g), "twice too long: " + BOTH_WAYS),
        Wrong("both directions", lambda n, s, z, g: floor_s(n, s, z, g) / 2, "half too short: " + BOTH_WAYS),
        Wrong("milliseconds", lambda n, s, z, g: 1e3 * floor_s(n, s, z, g),
              "this is in milliseconds. Seconds are wanted."),
        Wrong("one step", lambda n, s, z, g: floor_s(n, s, 1, g),
              "right for one step. What is copied again in the next one?"),
        Wrong("one layer", lambda n, s, z, g: floor_s(1, s, z, g),
              "this copies one layer. How many are offloaded?"),
        Wrong("one buffer less", lambda n, s, z, g: floor_s(n - 1, s, z, g),
              "you subtract a buffer. A buffer is memory; does it save a copy?"),
        Wrong("a step more", lambda n, s, z, g: floor_s(n, s, z + 1, g),
              "one step too many: steps counts every step that copies."),
        Wrong("a step less", lambda n, s, z, g: floor_s(n, s, z - 1, g),
              "one step too few: the first one copies as well."),
        Wrong("upside down", lambda n, s, z, g: 1 / floor_s(n, s, z, g),
              "this is how often it could be done in a second. The time is wanted."),
    ),
    hints=(
        "How many bytes cross the link in one step? How many in all steps?",
        "gb_per_s x 10**9 bytes cross it each second.",
        "steps x layers x layer_bytes / (gb_per_s x 10**9).",
    ),
)  # fmt: skip

BANDWIDTH = Part(
    id="8-5e",
    title="Bandwidth that the copies need",
    returns="one number, in GB/s",
    expected=needed_gb_per_s,
    book=tuple((*BOOK, STEPS, seconds) for seconds in (1, 7)),
    others=((1, GB, 1, 1), (2, GB, 1, 1), (2, GB, 3, 1), (2, GB, 4, 2), (3, 10 * MIB, 1, 2), (2, 10 * MIB, 10, 0.5)),
    draw=draw_needed,
    wrong=(
        Wrong("bytes", lambda *case: needed_gb_per_s(*case) * GB, "this is in bytes a second. GB/s are wanted."),
        Wrong("MB", lambda *case: needed_gb_per_s(*case) * 1e3, "this is in MB/s. GB/s are wanted."),
        Wrong("GiB", lambda *case: needed_gb_per_s(*case) * GB / GIB,
              "this is in GiB/s. Links are given in GB/s, 10**9 bytes a second."),
        Wrong("Gbit", lambda *case: 8 * needed_gb_per_s(*case),
              "this is in Gbit/s. GB/s are wanted: bytes, not bits."),
        Wrong("MB for MiB", lambda *case: mib_as_mb(needed_gb_per_s(*case)),
              "you take the layers' MiB for MB. Use the bytes: they need no conversion."),
        Wrong("one step", lambda n, s, z, t: needed_gb_per_s(n, s, 1, t),
              "this is enough for one step in that time. How many have to share it?"),
        Wrong("one layer", lambda n, s, z, t: needed_gb_per_s(1, s, z, t),
              "this copies one layer. How many are offloaded?"),
        Wrong("both directions", lambda *case: 2 * needed_gb_per_s(*case), "twice too much: " + BOTH_WAYS),
        Wrong("half", lambda *case: needed_gb_per_s(*case) / 2, "half too little: " + BOTH_WAYS),
        Wrong("a step more", lambda n, s, z, t: needed_gb_per_s(n, s, z + 1, t),
              "one step too many: steps counts every step that copies."),
        Wrong("time for each step", lambda n, s, z, t: needed_gb_per_s(n, s, 1, t * z),
              "seconds is the time for all copies together. Do more steps need more bandwidth, or less?"),
        Wrong("one second", lambda n, s, z, t: needed_gb_per_s(n, s, z, 1),
              "right for 1 s. What if more or less time is given?"),
        Wrong("times seconds", lambda n, s, z, t: needed_gb_per_s(n, s, z, 1 / t),
              "you multiply by the time. Does a link have to be faster if there is more time?"),
    ),
    hints=(
        "How many bytes must cross the link in all? How long may that take?",
        "Bytes a second first. A GB is 10**9 bytes.",
        "layers x layer_bytes x steps / seconds / 10**9.",
    ),
)  # fmt: skip

BUFFERS = Choice(
    id="8-5f",
    title="What a second buffer changes",
    options={
        "a": "The floors stay. A second buffer changes what can run at the same time, not what crosses the link.",
        "b": "The floors halve, since two layers are copied at the same time.",
        "c": "The floors no longer matter: copies that run behind computations take no time.",
        "d": "The floors double, since every layer is copied into both buffers.",
    },
    right="a",
    wrong={
        "b": "How many links are there? When two copies share one, how fast is each of them?",
        "c": "Compare the floor of one step over PCIe Gen5 with the 26.26 ms that a step computes. Which is longer?",
        "d": "What would the second copy of the same weights be good for?",
    },
    hints=(
        "Which arguments does your function of part d have? Is the number of buffers one of them?",
        "Count the bytes that cross the link in one step: with one buffer, and with two.",
        "With two buffers one layer computes while the next is copied. What can get shorter by that, what cannot?",
    ),
)
