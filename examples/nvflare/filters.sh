#!/bin/sh
# FLARE's two privacy filters beside no filter and beside aggregators: ten hospitals, the last one hostile, in the
# simulator; a row per call, a column per attack.
#   sh filters.sh DIR [ROUNDS]      writes the runs and report.html into DIR and prints the table; 20 rounds by default
set -eu
out=$1 rounds=${2:-20}
export OMP_NUM_THREADS=1

audit() {
    scapegoat nvflare audit --job job.py:recipe --material hospital_sites:material --clients 10 \
        --set rounds="$rounds" --set differences=true --attack passive --attack fedpoisonmia --attack adaptive \
        --env OMP_NUM_THREADS --out "$out" "$@"
}

audit --set aggregator=FedAvg
audit --set aggregator=FedAvg --filter percentile_privacy
audit --set aggregator=FedAvg --filter svt_privacy
audit --set aggregator=FedAvg --filter '{name: percentile_privacy, percentile: 90, gamma: 0.001}'
audit --set aggregator=FedAvg --filter '{name: svt_privacy, fraction: 0.5, gamma: 0.001, noise_var: 10}'
audit --set aggregator=AngularTrimmedMean
audit --set aggregator=MemoryAngularTrimmedMean
audit --set aggregator=ReputationAngularTrimmedMean
scapegoat report "$out" --out "$out/report.html"
scapegoat report "$out" --format markdown
