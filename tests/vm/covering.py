"""Covering arrays: few rows in which each pair of values of any two factors occurs. The same table
gives the same rows. A case that says "#: rows NAME" finds those of the table in /job/rows.NAME, a
line each of FACTOR=VALUE."""
import itertools

TABLES = {
    # What a collective over rdma may depend on. Programs are of bench/; each does it in place and
    # out of place. `memory` is an option of theirs: from gyreMemAlloc, registered, or of malloc.
    "rdma": {
        "program": ["all_reduce_perf", "all_gather_perf", "reduce_scatter_perf", "broadcast_perf",
                    "reduce_perf", "gather_perf", "scatter_perf", "alltoall_perf",
                    "alltoallv_perf", "sendrecv_perf"],
        "bytes": ["0", "4", "232", "4K", "100K", "1M", "16M"],
        "ranks": ["2", "3", "4"],
        "type": ["float", "int8", "half"],
        "memory": ["--local_register=0", "--local_register=1", "--plain_memory"],
        "pairs": ["1", "4"],
        "devices": ["1", "2"],
    },
    # The same by ucx, over GIDs of IPv4 and IPv6. Up to 8 KiB of a message come at once, and the
    # rest is fetched.
    "ucx": {
        "program": ["all_reduce_perf", "all_gather_perf", "reduce_scatter_perf", "broadcast_perf",
                    "alltoall_perf", "sendrecv_perf"],
        "bytes": ["0", "8", "256", "8K", "9K", "1M"],
        "ranks": ["2", "3", "4"],
        "type": ["float", "int8"],
        "family": ["4", "6"],
    },
}


def pairs_of(row):
    """Of (factor, value); a row that is not full yet has fewer."""
    return set(itertools.combinations(sorted(row.items()), 2))


def rows(factors):
    """Greedy: each row begins with the first pair that is still missing, and each further factor
    takes the value that adds most missing pairs, the least used one among equals."""
    names = list(factors)
    missing = [tuple(sorted([(a, x), (b, y)])) for a, b in itertools.combinations(names, 2)
               for x in factors[a] for y in factors[b]]
    left, used, found = set(missing), {}, []
    while left:
        row = dict(next(pair for pair in missing if pair in left))
        for name in names:
            if name not in row:
                row[name] = max(factors[name], key=lambda value: (
                    len(pairs_of({**row, name: value}) & left), -used.get((name, value), 0)))
        left -= pairs_of(row)
        for item in row.items():
            used[item] = used.get(item, 0) + 1
        found.append({name: row[name] for name in names})
    return found


def text(table):
    return "".join(" ".join(f"{name}={value}" for name, value in row.items()) + "\n"
                   for row in rows(TABLES[table]))
