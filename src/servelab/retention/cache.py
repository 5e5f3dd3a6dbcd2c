"""A store of whole prefixes with limited room, driven by a trace of requests (section 8.3.4)."""

from collections.abc import Hashable, Iterable, Mapping

from servelab.checks import require_int, require_name
from servelab.retention.value import Prefix

# What is kept longest: a prefix with a higher rank. Among equal ranks the least recently used goes first.
POLICIES = {
    "lru": lambda prefix, uses: 0,  # least recently used goes first
    "lfu": lambda prefix, uses: uses,  # least frequently used goes first, counted since it was admitted
    "value": lambda prefix, uses: prefix.value_s,
    "value_density": lambda prefix, uses: prefix.value_per_mib,
}


class PrefixStore:
    """At most `capacity_bytes` of prefixes, kept by one of `POLICIES`.

    "lru" and "lfu" admit whatever fits. The two that go by value admit a prefix only if keeping it is worth something
    and only at the cost of prefixes that rank lower: without that, one request for a worthless prefix would push
    out a good one. Unknown policies, capacities that are no size and things that are no `Prefix` raise `ValueError`.
    """

    def __init__(self, prefixes: Mapping[Hashable, Prefix], capacity_bytes: int, policy: str):
        require_int("capacity_bytes", capacity_bytes)
        require_name("policy", policy, POLICIES)
        for prefix_id, prefix in prefixes.items():
            if not isinstance(prefix, Prefix):
                raise ValueError(f"prefixes[{prefix_id!r}] is {prefix!r}; it must be a Prefix")
        self.prefixes = dict(prefixes)
        self.capacity_bytes = capacity_bytes
        self.policy = policy
        self.hits: list[bool] = []  # of each request
        self.hit_tokens = 0
        self.recomputed_tokens = 0
        self.saved_s = 0.0  # against keeping nothing: hits save, fetches and admissions cost
        self.evictions = 0
        self._uses: dict[Hashable, int] = {}  # of what is kept, the least recently used first

    @property
    def kept(self) -> list[Hashable]:
        """What is kept, the least recently used first."""
        return list(self._uses)

    @property
    def used_bytes(self) -> int:
        return sum(self.prefixes[prefix_id].size_bytes for prefix_id in self._uses)

    def use(self, prefix_id: Hashable) -> bool:
        """Serve one request that begins with a prefix; True if it was kept. A miss computes it, and may admit it."""
        _require_known("prefix_id", prefix_id, self.prefixes)
        prefix = self.prefixes[prefix_id]
        is_hit = prefix_id in self._uses
        self.hits.append(is_hit)
        if is_hit:
            self.hit_tokens += prefix.tokens
            self.saved_s += prefix.recompute_s - prefix.fetch_s
            self._uses[prefix_id] = self._uses.pop(prefix_id) + 1  # to the end of the dict: most recently used
            return True
        self.recomputed_tokens += prefix.tokens
        victims = self._victims(prefix)
        if victims is not None:
            for victim in victims:
                del self._uses[victim]
            self.evictions += len(victims)
            self._uses[prefix_id] = 1
            self.saved_s -= prefix.maintain_s
        return False

    def _victims(self, prefix: Prefix) -> list[Hashable] | None:
        """What must go so that `prefix` fits, in order; None if it is not to be admitted."""

        def rank(kept):
            return POLICIES[self.policy](self.prefixes[kept], self._uses[kept])

        goes_by_value = self.policy in ("value", "value_density")
        if prefix.size_bytes > self.capacity_bytes or (goes_by_value and prefix.value_s <= 0):
            return None
        missing = prefix.size_bytes - (self.capacity_bytes - self.used_bytes)
        victims = []
        # sorted() keeps the order of equal ranks, so that recency decides between them.
        for victim in sorted(self._uses, key=rank):
            if missing <= 0:
                break
            if goes_by_value and rank(victim) >= POLICIES[self.policy](prefix, 1):
                return None
            missing -= self.prefixes[victim].size_bytes
            victims.append(victim)
        return victims


def replay(
    trace: Iterable[Hashable], prefixes: Mapping[Hashable, Prefix], capacity_bytes: int, policy: str
) -> PrefixStore:
    """A store after all requests of `trace`, each given by the id of its prefix in `prefixes`."""
    trace = list(trace)
    for at, prefix_id in enumerate(trace):
        _require_known(f"trace[{at}]", prefix_id, prefixes)
    store = PrefixStore(prefixes, capacity_bytes, policy)
    for prefix_id in trace:
        store.use(prefix_id)
    return store


def _require_known(name: str, prefix_id: Hashable, prefixes: Mapping[Hashable, Prefix]) -> None:
    if prefix_id not in prefixes:
        raise ValueError(f"{name} is {prefix_id!r}; it must be one of the {len(prefixes)} ids in prefixes")
