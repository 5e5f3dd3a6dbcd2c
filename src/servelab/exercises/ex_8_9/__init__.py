"""Exercise 8-9: a configuration within memory and deadline, and goodput measured by oneself (sections 8.6.2, 8.6.3)."""

from servelab.exercises.ex_8_9.own import GOODPUT, OWN
from servelab.exercises.ex_8_9.plans import BYTES, CHOSEN, SHORT, TOTAL

PARTS = (TOTAL, BYTES, CHOSEN, SHORT, GOODPUT, OWN)
