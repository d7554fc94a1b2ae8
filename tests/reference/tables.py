"""Rows of a table to features, cell by cell."""

import statistics


def features(rows, names, missing="refuse"):
    """`rows` are dictionaries with numbers, text or None. Returns the features of the rows that are kept, and which."""
    kept = [i for i, row in enumerate(rows) if missing != "drop" or all(row[name] is not None for name in names)]
    encoded = []
    for i in kept:
        record = []
        for name in names:
            there = [rows[j][name] for j in range(len(rows)) if rows[j][name] is not None]
            value = rows[i][name]
            if any(isinstance(v, str) for v in there):
                seen = {rows[j][name] for j in kept}
                order = sorted(v for v in seen if v is not None) + ([None] if None in seen else [])
                record += [float(value == category) for category in order]
            elif value is None:
                fills = {"mean": statistics.fmean, "median": statistics.median, "zero": lambda values: 0.0}
                record.append(fills[missing](there))
            else:
                record.append(float(value))
        encoded.append(record)
    return encoded, kept
