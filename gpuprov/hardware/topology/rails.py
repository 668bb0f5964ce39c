"""Rails: each GPU with a near HCA of its own, as NCCL and rail-optimized fabrics need it."""

import msgspec

from gpuprov.hardware.topology.model import DISTANCES, Distance, Gpu, Hca, Wiring


class Rails(msgspec.Struct, frozen=True, kw_only=True):
    """The pairing."""

    # A GPU's index -> its HCA.
    pairs: dict[int, Hca] = {}
    # GPUs without an HCA.
    without: tuple[Gpu, ...] = ()
    # HCAs with more GPUs than others.
    crowded: tuple[tuple[Hca, tuple[Gpu, ...]], ...] = ()
    # GPUs per HCA, if they are shared evenly.
    share: int = 1

    @property
    def matched(self) -> bool:
        return bool(self.pairs) and not self.without and not self.crowded


def build_rails(wiring: Wiring, limit: Distance = "PXB") -> Rails:
    """Pair each GPU with an HCA, none farther than `limit`: as many GPUs as possible get their own, near ones first.
    HCAs without a near GPU (storage) do not count. In a tree, GPUs within a distance of one HCA are within it of the
    same HCAs, so no GPU has to yield to another."""
    reach = {gpu.index: _list_near(wiring, gpu, limit) for gpu in wiring.gpus}
    usable = {hca.name for hcas in reach.values() for hca in hcas}
    if not usable:
        return Rails(without=wiring.gpus)
    share = -(-len(wiring.gpus) // len(usable))
    taken: dict[str, list[int]] = {name: [] for name in usable}
    tiers = [
        {gpu.index: _list_near(wiring, gpu, tier) for gpu in wiring.gpus}
        for tier in DISTANCES[: DISTANCES.index(limit) + 1]
    ]
    for room in range(1, share + 1):
        for tier in tiers:
            held = {index for indices in taken.values() for index in indices}
            for gpu in wiring.gpus:
                free = next((hca.name for hca in tier[gpu.index] if len(taken[hca.name]) < room), "")
                if free and gpu.index not in held:
                    taken[free].append(gpu.index)
    hcas = {hca.name: hca for hca in wiring.hcas}
    pairs = {index: hcas[name] for name, indices in taken.items() for index in indices}
    by_index = {gpu.index: gpu for gpu in wiring.gpus}
    least = min(map(len, taken.values()))
    crowded = tuple(
        (hcas[name], tuple(by_index[index] for index in sorted(indices)))
        for name, indices in taken.items()
        if len(indices) > max(least, 1)
    )
    without = tuple(gpu for gpu in wiring.gpus if gpu.index not in pairs)
    return Rails(pairs=dict(sorted(pairs.items())), without=without, crowded=crowded, share=share)


def find_spare(wiring: Wiring, rails: Rails) -> tuple[Hca, ...]:
    """Return HCAs that belong to no GPU, on a host with at most as many HCAs as GPUs, so that one may be in a wrong
    slot."""
    if len(wiring.hcas) > len(wiring.gpus):
        return ()
    taken = {hca.name for hca in rails.pairs.values()}
    return tuple(hca for hca in wiring.hcas if hca.name not in taken)


def _list_near(wiring: Wiring, gpu: Gpu, limit: Distance) -> tuple[Hca, ...]:
    far = {hca.name: DISTANCES.index(wiring.distance(gpu.function, hca.function)) for hca in wiring.hcas}
    near = [hca for hca in wiring.hcas if far[hca.name] <= DISTANCES.index(limit)]
    return tuple(sorted(near, key=lambda hca: far[hca.name]))
