"""Exercise 8-1: what a batch reads, where KV passes the weights, and how many requests fit (sections 8.1.2, 8.2.1)."""

from servelab.exercises.ex_8_1.limits import CAPACITY, FIRST, SHORT
from servelab.exercises.ex_8_1.reads import CROSSING, READS

PARTS = (READS, CROSSING, CAPACITY, SHORT, FIRST)
