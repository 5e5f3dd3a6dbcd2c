"""Exercise 8-3: block size, shared prefixes and what they do to capacity (sections 8.3.1 and 8.3.2)."""

from servelab.exercises.ex_8_3.capacity import INDEPENDENT, SHARED
from servelab.exercises.ex_8_3.common_block import PRICE_OF_ONE, SAVED
from servelab.exercises.ex_8_3.slots import TOTALS, UNUSED

PARTS = (UNUSED, TOTALS, INDEPENDENT, SHARED, SAVED, PRICE_OF_ONE)
