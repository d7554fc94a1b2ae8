"""Reference federations are ordinary runs of the same targets with other coins and other chance in training."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from scapegoat.errors import InputError
from scapegoat.experiments import RunStore, parse
from scapegoat.experiments.executors import execute
from scapegoat.experiments.references import reference_margins, reference_specs, with_references
from scapegoat.experiments.run import run
from scapegoat.experiments.staging import staged
from tests.experiments import tiny


def coin_spec(**options: Any) -> dict[str, Any]:
    return {**tiny.spec(**options), "evaluation": {"design": "coin"}}


def test_all_cells_of_an_audit_share_their_references() -> None:
    cells = [coin_spec(attack=a, defense=d) for a in ("passive", "fedpoisonmia") for d in ("fedavg", "atm")]
    hashes = {tuple(s.hash for s in reference_specs(parse(cell), 3)) for cell in cells}
    assert len(hashes) == 1
    assert len(set(*hashes)) == 3


def test_more_references_begin_with_the_same_ones() -> None:
    spec = parse(coin_spec())
    assert [s.hash for s in reference_specs(spec, 5)][:2] == [s.hash for s in reference_specs(spec, 2)]


def test_a_rehearsal_has_the_attack_and_the_rule_of_the_audited_run() -> None:
    spec = parse(coin_spec(attack="fedpoisonmia", defense="atm", gamma=0.3))
    (reference,) = reference_specs(spec, 1, attack="same", defense="same")
    assert reference.attack == spec.attack
    assert reference.defense == spec.defense
    assert reference.hash != spec.hash


@pytest.mark.parametrize(
    ("evaluation", "says"),
    [({"reference": 1}, "evaluation.reference"), ({"design": "coin", "reference": -1}, "evaluation.reference")],
)
def test_a_reference_without_coins_is_refused(evaluation: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says):
        parse({**tiny.spec(), "evaluation": evaluation})


def test_a_design_without_coins_has_no_references() -> None:
    with pytest.raises(InputError, match=r"evaluation\.design.*coin"):
        reference_specs(parse(tiny.spec()), 2)


def test_a_reference_starts_from_another_model_and_picks_other_clients() -> None:
    spec = parse(coin_spec())
    audited, reference = staged(spec), staged(reference_specs(spec, 1)[0])
    assert audited.targets.x.equal(reference.targets.x)
    assert audited.truth.wrong_label.tolist() == reference.truth.wrong_label.tolist()
    assert not audited.server.parameters.equal(reference.server.parameters)
    picks = [[c.setting.pick(c.seed, r) for r in range(8)] for c in (audited, reference)]
    assert picks[0] != picks[1]
    assert audited.seed == spec.seed
    seats = (reference.benign.seed, reference.attacker.seed, reference.server.seed, reference.seed)
    assert len(set(seats)) == 1
    assert reference.seed != spec.seed


def test_margins_and_coins_are_aligned_by_record(tmp_path: Any) -> None:
    store = RunStore(tmp_path)
    spec = parse(coin_spec())
    references = reference_specs(spec, 3)
    assert not execute([spec, *references], store).failures
    table = store.targets(spec.hash)
    records = table["record"].to_numpy()
    shuffled = np.random.default_rng(0).permutation(records)
    margins, included = reference_margins(store, references, shuffled)
    for row, reference in enumerate(references):
        by_record = {t["record"]: t for t in store.targets(reference.hash).to_pylist()}
        assert margins[row].tolist() == [by_record[r]["score_final"] for r in shuffled]
        assert included[row].tolist() == [by_record[r]["member"] for r in shuffled]
        assert all(t["client"] is not None for t in by_record.values())
    assert 0 < included.mean() < 1
    owners = {t["record"]: t["client"] for t in table.to_pylist()}
    assert all(owners[t["record"]] == t["client"] for t in by_record.values())


def test_a_reference_that_is_missing_or_of_other_targets_is_named(tmp_path: Any) -> None:
    spec = parse(coin_spec())
    (reference,) = reference_specs(spec, 1)
    with pytest.raises(InputError, match=r"reference federation 1 .*is not there"):
        reference_margins(RunStore(tmp_path), [reference], np.arange(3))
    result = run(reference, store=RunStore(tmp_path))
    others = np.setdiff1d(np.arange(800), result.targets["record"].to_numpy())
    with pytest.raises(InputError, match="other targets"):
        reference_margins(RunStore(tmp_path), [reference], others[-3:])


def test_references_add_scores_when_they_are_read_and_leave_the_run_as_it_is(tmp_path: Any) -> None:
    store = RunStore(tmp_path)
    spec = parse(coin_spec(rounds=4))
    references = reference_specs(spec, 3)
    execute([spec, *references], store)
    before = {path.name: path.read_bytes() for path in store.path(spec.hash).iterdir()}
    found, targets = with_references(store, spec.hash, references)
    stored = store.summary(spec.hash)
    own = stored["membership"]["scores"]
    assert set(own) == {"final_margin", "mean_margin", "trajectory"}
    assert {name: found["membership"]["scores"][name] for name in own} == own
    assert {"lira_offline", "lira_online", "rmia", "bavaria"} <= set(found["membership"]["scores"])
    assert set(found["validity"]["permutation_p"]) == set(found["membership"]["scores"])
    assert found["membership"]["worst_score"]["tried"] == len(found["membership"]["scores"])
    assert found["membership"]["references"] == 3
    columns = {f"score_{name}" for name in found["membership"]["scores"]} - {"score_final_margin"}
    assert columns <= set(targets.column_names)
    assert found["membership"]["accuracy_best"] == stored["membership"]["accuracy_best"]
    assert {path.name: path.read_bytes() for path in store.path(spec.hash).iterdir()} == before


def test_only_the_audited_run_is_held_against_what_records_alone_tell(tmp_path: Any) -> None:
    spec = parse(coin_spec())
    assert run(spec).summary["validity"]["blind_auc"] is not None
    assert run(reference_specs(spec, 1)[0]).summary["validity"]["blind_auc"] is None
