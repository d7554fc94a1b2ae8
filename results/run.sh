#!/bin/sh
# Computes everything that results/README.md is made from, and the plans. Stop it and start it again as you like.
#   SCAPEGOAT_DATA=folder/with/location30/and/cifar10 results/run.sh runs
set -eu
here=$(dirname "$0")
runs=${1:?usage: results/run.sh DIR}
sweep() { scapegoat sweep "$@"; }
results() { PYTHONPATH="$here/.." python -m results "$@"; }

sweep main-c08 --data hospital --rounds 150 --out "$runs/hospital"
sweep main-c08 --data location30 --rounds 300 --seeds 3 --out "$runs/location30"
for name in attack-cost defense-cost; do sweep $name --data location30 --out "$runs/location30"; done
for name in mask-selection more-defenses main-c10 async-c08 async-c10 malicious-fraction non-iid-degree \
    client-count target-count partial-knowledge; do
  sweep $name --data location30 --rounds 150 --out "$runs/location30"
done
for name in beyond skewed; do sweep "$here/$name.yaml" --out "$runs/location30"; done
for name in reference reference-slow reference-masks reputation; do sweep "$here/$name.yaml" --seeds 3 --out "$runs/location30"; done
for name in reference-noise reference-slow-coordinates; do sweep "$here/$name.yaml" --out "$runs/location30"; done
sweep "$here/partial.yaml" --out "$runs/hospital"
sweep "$here/reputation.yaml" --data hospital --rounds 150 --seeds 3 --out "$runs/hospital"
sweep "$here/cifar10.yaml" --out "$runs/cifar10"
for name in hospital location30; do
  sweep "$here/sketches.yaml" --only data.name=$name --seeds 3 --out "$runs/sketches-$name"
  results collect "$runs/sketches-$name" --out "$here/evidence/sketches-$name.parquet"
done

# Plans: those that audits recommend (`scapegoat audit --data DATA --references 8`, the files say how), held against every
# attack; decay, which was recommended before; the picture of protections beside early stopping.
for data in location30 hospital; do
  for plan in $data $data-bias-0.5 $data-bias-0.9; do
    sweep "$here/plans/$plan.yaml" --seeds 3 --out "$runs/recommended"
    sweep "$here/plans/$plan-colluders.yaml" --seeds 3 --out "$runs/recommended"
  done
done
results collect "$runs/recommended" --out "$here/plans/recommended.parquet"
PYTHONPATH="$here/.." python -m results.plan_references "$runs/recommended" --csv "$here/evidence/plans-with-references.csv"
decay() { sweep plans --data location30 --rounds 150 --seeds 3 --out "$runs/decay" "$@"; }
decay --only attack=passive --only plan=fedavg
decay --only plan=reputation-decay-0.01-cooling --only partition=iid
decay --only plan=clipped-decay-0.01-cooling --only partition=bias-0.5,bias-0.9
results collect "$runs/decay" --out "$here/plans/decay-location30.parquet"
for name in stopped decay steps; do sweep "$here/plans/cifar10-$name.yaml" --out "$runs/plans-cifar10"; done
sweep "$here/plans/cifar10-stopped.yaml" --only attack.name=passive --set defense.name=fedavg --out "$runs/plans-cifar10"
sweep "$here/plans/cifar10-decay.yaml" --only attack.name=passive --set 'federation.protect=[{name: weight_decay, rate: 0.002}, {name: cooling}]' \
  --out "$runs/plans-cifar10"
results collect "$runs/plans-cifar10" --out "$here/plans/cifar10.parquet"
frontier() { sweep "$here/$1.yaml" --data location30 --data hospital --out "$runs/frontier"; }
frontier frontier
frontier frontier-rules
frontier frontier-steps
sweep "$here/frontier.yaml" --data location30 --data hospital --out "$runs/frontier" \
  --set defense.name=reputation_atm --only 'federation.protect=[]'
PYTHONPATH="$here/.." python -m results.frontier "$runs/frontier"

for name in hospital location30 cifar10; do
  results collect "$runs/$name" --out "$here/$name.parquet"
done
results page "$here" --out "$here/README.md"
