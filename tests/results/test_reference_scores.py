"""What references add: the runs are those of an audit, and the table has every score by their number."""

from __future__ import annotations

import numpy as np

from results.reference_scores import Row, audited, comma_separated, measured, table
from scapegoat.auditing import audit_specs
from scapegoat.experiments import RunStore
from scapegoat.experiments.executors import execute
from scapegoat.experiments.references import reference_specs
from scapegoat.experiments.spec import parse


def test_its_references_are_those_of_an_audit() -> None:
    overrides = ["evaluation.every=150", "attack.targets=1000"]
    specs = audit_specs(attacks=["fedpoisonmia"], defenses=["atm"], overrides=overrides)
    mine = audited("hospital", "passive", targets=1000, rounds=150, seed=0)
    assert [s.hash for s in reference_specs(mine, 2)] == [s.hash for s in reference_specs(specs[0], 2)]


def test_fewer_references_are_a_mean_over_groups_of_them(tmp_path) -> None:
    small = {"name": "hospital", "records": 700, "features": 20, "classes": 4, "validation": 20}
    spec = parse(
        {
            "data": small,
            "model": {"name": "mlp", "hidden": [8]},
            "federation": {"rounds": 3, "clients": 4},
            "attack": {"name": "passive", "targets": 60, "mask": 20},
            "evaluation": {"design": "coin"},
        }
    )
    store = RunStore(tmp_path)
    execute([spec, *reference_specs(spec, 4)], store)
    rows = list(measured(spec, store, [2, 4]))
    groups = {(row.score, row.references): row.groups for row in rows}
    assert (groups["final_margin", 0], groups["rmia", 2], groups["rmia", 4]) == (1, 2, 1)
    assert all(row.auc_low <= row.auc <= row.auc_high for row in rows)
    assert np.isfinite([row.agreement for row in rows]).all()


def test_the_table_has_a_line_per_score_and_a_column_per_number_of_references() -> None:
    rows = [Row("hospital", "passive", 0, "rmia", n, 1, 0.8, 0.7, 0.9, 0.0, 0.25, 1.0) for n in (4, 64)]
    assert table(rows).splitlines()[-1] == "| hospital | passive | `rmia` |  | 0.800 / 0.250 | 0.800 / 0.250 |"
    head, first, *_ = comma_separated(rows).splitlines()
    assert head.split(",")[:3] == ["data", "attack", "seed"]
    assert first == "hospital,passive,0,rmia,4,1,0.8000,0.7000,0.9000,0.0000,0.2500,1.0000"
