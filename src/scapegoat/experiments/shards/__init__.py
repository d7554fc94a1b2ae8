"""One federation over several processes or machines, with the numbers of one process, bit for bit.

Each process trains some of a round's clients and holds some columns of all updates (`shard`). The driver hands out the
work and replaces processes that die (`crew`); its rounds see updates like any others (`gathering`), which a rule asks
for what it needs where they are (`rows`).
"""
