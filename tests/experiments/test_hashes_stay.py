"""A run is found again by the hash of its spec: what these specs hashed to once, they hash to for good.

A hash may change only with the numbers of the runs that it names; it is then replaced here in the same commit.
"""

from __future__ import annotations

from typing import Any

import pytest

from scapegoat.experiments import parse

CONTENT = "0" * 64

HASHES: dict[str, tuple[dict[str, Any], str]] = {
    "nothing said": ({}, "754e01205597d90e4a93de60dea08a82cae3759a9a932b74af9f1066e578a4da"),
    "another seed": ({"seed": 7}, "f05d0f142cf3a31535950678f4e8aa096cdfd3d055a19eb8b7bb857d7e157700"),
    "threads and evaluation": (
        {"threads": 2, "evaluation": {"every": 5}},
        "88f1ec0f1ee1a20f2d4780b27fff73faf195eae258725c16a25a0e9d1d5e5a3e",
    ),
    "hospital, every option": (
        {
            "data": {
                "name": "hospital",
                "train": 1000,
                "test": 300,
                "validation": 50,
                "records": 2000,
                "features": 100,
                "classes": 10,
                "density": 0.1,
                "popular": 0.2,
                "mixing": 0.7,
                "seed": 3,
            }
        },
        "c8b581f15d1a3c616193e5b8c26139eaecd5ce4e832aefe66cde86712518f24c",
    ),
    "location30": (
        {"data": {"name": "location30"}},
        "17b8758eda4d27b41bfa579950733d970406e219d7f6cd062b72be25357f3f14",
    ),
    "texas100": ({"data": {"name": "texas100"}}, "2e86b9a6ff697c6173f57b2f1ebf4badd01cf882110edfe2a5d8f67223534284"),
    "purchase100": (
        {"data": {"name": "purchase100"}},
        "034e9ea2f58bcc48178942627b3db882ba5c4d655e59f9752c4862a8f3e75e51",
    ),
    "cifar10": (
        {"data": {"name": "cifar10"}, "model": {"name": "resnet20"}},
        "c40deee57fcd35085fdb4028eae73e2f528f4594f573dcd4b326cc6bf80f2751",
    ),
    "cifar10, tested on all": (
        {"data": {"name": "cifar10", "test": None}, "model": {"name": "resnet20"}},
        "5dc31e204d3df54e1dfd4c13eb6a8a4a9f8aba43c50c9ca2ed056a4772bb6d03",
    ),
    "stl10": (
        {"data": {"name": "stl10"}, "model": {"name": "resnet20"}},
        "07ac9cc642e06b693cf20dd128951ee8cbce5a0ec6219501892a044aef1def9a",
    ),
    "stl10, tested on all": (
        {"data": {"name": "stl10", "test": None}, "model": {"name": "resnet20"}},
        "ea3c27edcc28a20671b3314bc79ffba3dae1e519cb66e842f9539481ab219989",
    ),
    "fer2013": (
        {"data": {"name": "fer2013"}, "model": {"name": "resnet20"}},
        "e70338c36886952972f6f14112aa1d4de4cee7808160312980dacd661685bc8b",
    ),
    "fer2013, tested on all": (
        {"data": {"name": "fer2013", "test": None}, "model": {"name": "resnet20"}},
        "49f4c515d1e3d49223242233e12f7b0e91bb08dd86277cd0261d27d17baa665c",
    ),
    "fashion_mnist": (
        {"data": {"name": "fashion_mnist"}, "model": {"name": "resnet20"}},
        "0aeeae2f346715e801dac89f72a7ec6969a074650122340c84465186fef2e317",
    ),
    "fashion_mnist, tested on all": (
        {"data": {"name": "fashion_mnist", "test": None}, "model": {"name": "resnet20"}},
        "42dcc7132d35b2ff95398147c5e62774422ef96e50916ce7462f1b4f523c7ddb",
    ),
    "npz": (
        {"data": {"name": "npz", "path": "own.npz", "content": CONTENT}},
        "364d3090e9ff652ed7a8fd34a5d0c3283cd32d5bb23223145f7d1cbff2f605ee",
    ),
    "npz, as it is": (
        {"data": {"name": "npz", "path": "own.npz", "content": CONTENT, "standardize": False}},
        "5c78c455567ec5491024d964bbce81ffc621c49ffc217791583e248020e45988",
    ),
    "npz by its short name": (
        {"data": "npz:folder/own.npz"},
        "354da7e84d3840eb1cc2f4d05aaca8ea96d31c647abf69805968ec56e8edfe12",
    ),
    "npz by its short name, as it is": (
        {"data": {"name": "npz:folder/own.npz", "standardize": False}},
        "658164bd0300233c584ac4cfadf30f49fb7a514c01ef2721cd4032bb8a76fa61",
    ),
    "parquet": (
        {"data": {"name": "parquet", "path": "own.parquet", "content": CONTENT, "label": "outcome"}},
        "fdbaf7fe65f70a8e7ccbdfb3689c9aee5cd06fe1936c1cf6c6c69118747d3624",
    ),
    "images": (
        {
            "data": {"name": "images", "path": "pictures", "content": CONTENT, "size": 32, "colour": "gray"},
            "model": {"name": "resnet20", "norm": "batch"},
        },
        "91abb256d8f824a6915733a82f66f94a4428dd1081378d0b002fd389a39ed6ea",
    ),
    "another mlp": (
        {"model": {"name": "mlp", "hidden": [64, 32]}},
        "1592cad0b8ce073b6729c392ad661addf5ac4c9223963db71dc4609905c0df98",
    ),
    "a model of the user's own": (
        {"model": {"name": "import", "factory": "own:make", "options": {"width": 8}, "content": CONTENT}},
        "da42d79129f238d9eb17d85ce9ee517c7a0a1ca9c374be3148c88aeea17fe391",
    ),
    "local epochs": (
        {"federation": {"local": {"name": "epochs", "epochs": 2, "optimizer": "adam", "lr": 0.05}}},
        "bc5323be8ed494b3338ac3a3a051a97c201ebf1a11941e7841e7d13114a9adb4",
    ),
    "asynchronous": (
        {"federation": {"schedule": {"name": "async", "tau_max": 3, "buffer": 4}}},
        "111d792f9db9e665670af895749c816f2ce9abc248a4c4cf1de6d7271f3688dd",
    ),
    "another federation": (
        {
            "federation": {
                "clients": 50,
                "malicious": 10,
                "fraction": 1.0,
                "rounds": 150,
                "batch_size": 32,
                "server": {"optimizer": "sgd", "lr": 0.1},
            }
        },
        "8a99a83f33b2d3a22cc3b13f923d4846538cbaa242ac3c6a3a29c395607455b8",
    ),
    "label bias": (
        {"federation": {"partition": {"name": "label_bias", "beta": 0.9}}},
        "fbb2e7093aae706a8bea876171b39150922692c8b8b6c26923d5b498231f4014",
    ),
    "dirichlet": (
        {"federation": {"partition": {"name": "dirichlet", "alpha": 0.1}}},
        "8b937fe1606b54acbf30a36bd95f20ebde392af7f519252cac1542cd41dd083a",
    ),
    "attack passive": (
        {"attack": {"name": "passive"}, "defense": {"name": "atm", "trim": 2}},
        "dab2e345f60bcef80d09fb7cbc44754faafbe3b2425d8bcabd43e47af7fa35df",
    ),
    "attack gradient_ascent": (
        {"attack": {"name": "gradient_ascent"}, "defense": {"name": "atm", "trim": 2}},
        "92fdeb7c5e77fb06086e03a7ec09919d8c2735f113032dd74e92199945b7e38f",
    ),
    "attack agrevader": (
        {"attack": {"name": "agrevader"}, "defense": {"name": "atm", "trim": 2}},
        "59b981f6f945b4e60d033cd0e9d4166e2957f27984486558d213c2477c3d28a0",
    ),
    "attack adaptive": (
        {"attack": {"name": "adaptive"}, "defense": {"name": "atm", "trim": 2}},
        "d3acd55999a41ec51f79965c74dd4d7086e9bd9108029884ab1f5cdde412e0cc",
    ),
    "attack fedpoisonmia": (
        {"attack": {"name": "fedpoisonmia"}, "defense": {"name": "atm", "trim": 2}},
        "c3d9f056fc30102cd943c7c8eaf05b9ec4e32e25d9edd0b48f74c1f6800ee198",
    ),
    "attack blend": (
        {"attack": {"name": "blend"}, "defense": {"name": "atm", "trim": 2}},
        "54d1a11cc05980cd5cc62eb05a548631d98151563f1bce8d3acb79f7e6cb4898",
    ),
    "attack sleeper": (
        {"attack": {"name": "sleeper"}, "defense": {"name": "atm", "trim": 2}},
        "5fd9e9a67f837134ed4d632772cdbd84d5356d747b07001edb6ba25228358757",
    ),
    "attack alternating": (
        {"attack": {"name": "alternating"}, "defense": {"name": "atm", "trim": 2}},
        "8291c1a268b664d0230462643fd6e009834bac560595cf9c76d1afdacce77d9e",
    ),
    "attack few_targets": (
        {"attack": {"name": "few_targets"}, "defense": {"name": "atm", "trim": 2}},
        "63aa820fc010407a7dfa16779f11b40ab51f8bb44f1b36a76748a5b4f8c0ec83",
    ),
    "attack colluders": (
        {"attack": {"name": "colluders"}, "defense": {"name": "atm", "trim": 2}},
        "645e7b7bd0c1c68cdf2cf0c0444d608a75c684fc8ec5b0b03f20e299cff3e6f8",
    ),
    "fedpoisonmia, every option": (
        {
            "attack": {
                "name": "fedpoisonmia",
                "knowledge": "partial",
                "targets": 100,
                "mask": 200,
                "start_round": 5,
                "gamma": 0.2,
                "selection": "random",
                "alpha": 1.5,
                "alpha_max": 5.0,
                "rounds_of_refinement": 1,
                "objective": "norm",
                "match_norm": True,
            },
            "federation": {"clients": 20, "malicious": 4},
        },
        "9a14602b4dfae9ceaa25b512797dd68a9c34eea3fef192ad1f66ce7a160d0bfd",
    ),
    "adaptive, every option": (
        {"attack": {"name": "adaptive", "steps": 20, "target_rule": "median", "evaluations": 12}},
        "326a0f3c16be25866d3bed2b12cffee26db027f7c4aebf7d7ff475540f1d5a56",
    ),
    "gradient ascent, scaled": (
        {"attack": {"name": "gradient_ascent", "scale": 3.0}},
        "5a73ed298779460750d15e5e4cb588c4d5d151b90f7c6a86b2489ca1b46e0daf",
    ),
    "rule atm": ({"defense": "atm"}, "3d08a62b3227eb31b15ec592fd194c84c30beabe7a58b66870de24e90ee111b5"),
    "rule bulyan": ({"defense": "bulyan"}, "1f4ce2ad5a367c3cd1020d4a706ad82fe1031cf56c9cd37f5058205f9d071b98"),
    "rule clipped_atm": (
        {"defense": "clipped_atm"},
        "7aa78528ccf8ec239b487582bd86cc96522908759c1aa7c02b4f0b5b24f138a8",
    ),
    "rule deepsight": ({"defense": "deepsight"}, "f7aadd891b2727d5e5587a808a927aa7f5a48122025a2a2fc06237e6d0b4b92f"),
    "rule dp": ({"defense": "dp"}, "b5ddf9434e64d6d53ed862b4b051f83941f1e8a5fab068fcca64a1305a799a05"),
    "rule fang": ({"defense": "fang"}, "6877ab1f5294c33d8f5f1c470c4e6860de42b128934a27cf3ba3e958117a3aec"),
    "rule flame": ({"defense": "flame"}, "e303fe036877f5bb43a1aa9d1621d796dc52c92aae97861302012872f9902b8f"),
    "rule fltrust": ({"defense": "fltrust"}, "ed0c5890cee4a0a4aa952d3e2bbbf9eda6e06c1b6773f9fa98a250dfacdc146b"),
    "rule geometric_median": (
        {"defense": "geometric_median"},
        "8a42f9a1adc79e595447984516d1eb7ff4c8304564bf290802933957b13ed8f4",
    ),
    "rule krum": ({"defense": "krum"}, "df990d77e6f690acab696845d34ab141b49627da815ebf922a1fa2b9ccefa1ee"),
    "rule median": ({"defense": "median"}, "b0497a655763bca8c2e1c97af15f27799d2f49b89f94c9aee710b5c29d786327"),
    "rule memory_atm": ({"defense": "memory_atm"}, "bbe29dd52fbe6fd610a16229b0544e373a9f5e9bac23a86df46f877650d7209b"),
    "rule reputation_atm": (
        {"defense": "reputation_atm"},
        "c81938952662e0209911ebae5812cc134b7ab9cbdbde5cd13490338b0b4b92dc",
    ),
    "rule multi_krum": ({"defense": "multi_krum"}, "291a1240d50de184d964ba6f89b5801d5e48c99975dbb62fc3999c89bb4dc575"),
    "multi_krum, scored again": (
        {"defense": {"name": "multi_krum", "rescore": True}},
        "61e73d2303b2857bb5f66bc4b33e27f822d2326afe99bc17b2968df164963a3c",
    ),
    "rule norm_clipping": (
        {"defense": "norm_clipping"},
        "c209c916fd2be61e77ecb898d87cf36c660c79ea07a4503c5bea7fa753f38090",
    ),
    "rule top_k": ({"defense": "top_k"}, "3593acc91303b68cce1275f01f1849723d48cee7ea0e7444f29ce49859ee2e0f"),
    "rule trimmed_mean": (
        {"defense": "trimmed_mean"},
        "b9086500038a2f1217a7ad5816ca76e31e634bd3ac3d51fd68a10ca5e63a40cb",
    ),
    "weighted mean": (
        {"defense": {"name": "fedavg", "weighted": True}},
        "97423fc010cce68c1e34a045c0b50261464b156bdb47dfbf156ec4f3c4024e0a",
    ),
    "dp, clipped": (
        {"defense": {"name": "dp", "clip": 1.0, "noise_multiplier": 0.5, "delta": 1e-06}},
        "c3e1d8b8a593334c8c48dad7f3b906642a38068fc960725289b0bb29c9fbf472",
    ),
    "a pipeline": (
        {"defense": [{"name": "norm_clipping"}, {"name": "atm", "trim": 1}]},
        "737357fdeb2a72412ce88062256642d35516165eeae0eba55f8a43cf2409eb5f",
    ),
    "a pipeline of three": (
        {"defense": ["top_k", {"name": "dp", "sigma": 0.01}, "median"]},
        "386339602e1227666692c1ae49a41d5f26a6cc7ce3052db6036ffdffcafcc261",
    ),
}


@pytest.mark.parametrize("name", HASHES)
def test_a_spec_keeps_its_hash(name: str) -> None:
    spec, expected = HASHES[name]
    assert parse(spec).hash == expected


@pytest.mark.parametrize("name", HASHES)
def test_a_spec_written_out_in_full_is_the_same_run(name: str) -> None:
    spec, expected = HASHES[name]
    assert parse(parse(spec).canonical()).hash == expected


def test_no_two_of_these_specs_are_the_same_run() -> None:
    assert len({expected for _, expected in HASHES.values()}) == len(HASHES)
