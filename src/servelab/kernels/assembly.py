"""What the compiler made of a Numba function: its instructions, and whether integers become floats one by one.

Knows the instructions of x86-64 (in AT&T's order, the destination last), and counts none elsewhere.
"""

import re
from collections import Counter
from dataclasses import dataclass

_PACKED = re.compile(r"v?cvtdq2ps$")  # a vector register of int32 at once
_SCALAR = re.compile(r"v?cvtsi2ss[lq]?$")  # one integer


@dataclass(frozen=True)
class Conversions:
    """Instructions that convert integers to float32: of several integers at once, and of one."""

    packed: int
    scalar: int


def conversions(dispatcher) -> Conversions:
    """Count them in all that `dispatcher`, an njit function, was compiled to; ValueError if that is nothing yet.

    A vectorized loop has scalar ones too, for what is left when its length is no multiple of the vector's.
    """
    mnemonics = Counter(line.split()[0] for block in basic_blocks(dispatcher) for line in block)
    packed, scalar = (
        sum(count for mnemonic, count in mnemonics.items() if pattern.match(mnemonic)) for pattern in (_PACKED, _SCALAR)
    )
    return Conversions(packed, scalar)


def converting_block(dispatcher) -> list[str]:
    """The instructions of the basic block that converts the most integers to float32; none if no block does.

    That is the loop to look at: packed conversions count before scalar ones.
    """

    def weight(block):
        mnemonics = [line.split()[0] for line in block]
        return sum(bool(_PACKED.match(m)) for m in mnemonics), sum(bool(_SCALAR.match(m)) for m in mnemonics)

    best = max(basic_blocks(dispatcher), key=weight)
    return best if weight(best) > (0, 0) else []


def converted_at_once(block: list[str]) -> int:
    """Integers that one pass through a basic block converts: 16 a zmm register, 8 a ymm, 4 an xmm, 1 a scalar one.

    A loop that converts more at once than there are to convert is never entered; the compiler leaves a smaller one.
    """
    lanes = {"z": 16, "y": 8, "x": 4}
    packed = [line.rsplit("%", 1)[1][0] for line in block if _PACKED.match(line.split()[0])]
    return sum(lanes[register] for register in packed) + sum(bool(_SCALAR.match(line.split()[0])) for line in block)


def basic_blocks(dispatcher) -> list[list[str]]:
    """The instructions from one label or jump to the next, in the order of the code; no directives, no comments."""
    listings = dispatcher.inspect_asm().values()
    if not listings:
        raise ValueError("dispatcher is not compiled yet: allowed is a function that has been called")
    blocks = [[]]
    for line in "\n".join(listings).splitlines():
        text = line.split("#")[0].strip()
        if text.endswith(":"):
            blocks.append([])
        elif text and not text.startswith("."):
            blocks[-1].append(" ".join(text.split()))
            if text.startswith("j"):  # a jump, or a conditional one
                blocks.append([])
    return [block for block in blocks if block]
