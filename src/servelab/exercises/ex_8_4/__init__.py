"""Exercise 8-4: which prefixes a small cache should keep, and what it finds again (sections 8.3.3 and 8.3.4)."""

from servelab.exercises.ex_8_4.found import LOAD, SHARES
from servelab.exercises.ex_8_4.value import FROM_SIZES, LINK, TIE, VALUE

PARTS = (VALUE, FROM_SIZES, TIE, LINK, SHARES, LOAD)
