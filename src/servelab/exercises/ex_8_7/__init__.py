"""Exercise 8-7: how long a draft should be (sections 8.5.2 to 8.5.4)."""

from servelab.exercises.ex_8_7.choice import BEST, FIFTH, MARGINAL
from servelab.exercises.ex_8_7.rounds import GROUPED, MS_PER_TOKEN, TOKENS

PARTS = (TOKENS, MS_PER_TOKEN, GROUPED, MARGINAL, FIFTH, BEST)
