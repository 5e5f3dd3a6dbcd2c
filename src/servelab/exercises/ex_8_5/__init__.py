"""Exercise 8-5: what offloaded weights free, and what copying them in costs (section 8.4.3)."""

from servelab.exercises.ex_8_5.copies import BANDWIDTH, BUFFERS, FLOOR
from servelab.exercises.ex_8_5.room import ALONE, IN_POOL, NET

PARTS = (NET, ALONE, IN_POOL, FLOOR, BANDWIDTH, BUFFERS)
