"""From a spec to everybody in their seats: the data read, the splits drawn, the model built."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch

from scapegoat import data, devices, models, tasks
from scapegoat.data import Dataset
from scapegoat.data.base import MEANT
from scapegoat.data.formats.memory import available
from scapegoat.data.formats.safe_io import human
from scapegoat.data.splits import split
from scapegoat.errors import InputError, OptionError
from scapegoat.experiments.spec import Spec
from scapegoat.extending.explained import explained
from scapegoat.federation.cast import Cast, cast, model_seed
from scapegoat.modelling.checks import RECORDS
from scapegoat.tasking.own_loss import TRIED
from scapegoat.tasks import Classification, TaskSpec

_BUILDING = 8
"""Bytes per parameter while a model is made: in the module, and in the flat vector."""
_BEYOND_WORDS = 10**18


def staged(spec: Spec, root: str | Path | None = None) -> Cast:
    """Everything before the first round; refuses, in one line, what does not fit."""
    task, dataset = posed(spec, root)
    setting = spec.federation
    splits = split(
        dataset,
        spec.data,
        partition=setting.partition,
        benign=setting.benign,
        targets=spec.attack.targets,
        mask=spec.attack.mask,
        seed=spec.seed,
        design=spec.evaluation.design,
        reference=spec.evaluation.reference,
        wrong_targets=task.wrong,
    )
    initial = model_seed(spec.training_seed)
    outputs = task.outputs(dataset.classes)
    device = devices.find(spec.device)
    _refuse_a_model_that_does_not_fit(spec.model, dataset.input_shape, outputs)
    model = models.build(
        spec.model, dataset.input_shape, outputs, initial, dataset.input_dtype, task, device, spec.precision
    )
    if task.loss is not None:
        few = torch.arange(min(TRIED, len(dataset)))
        outputs_of_few = devices.host(model.logits(model.initial(), dataset.inputs(few).to(device)))
        task.own.check(task.shaped(outputs_of_few), dataset.y[few])
    if not dataset.input_dtype.is_floating_point:
        _refuse_unknown_tokens(dataset, model)
    return cast(
        dataset=dataset,
        splits=splits,
        model=model,
        setting=setting,
        attack=spec.attack,
        rule=spec.defense,
        seed=spec.seed,
        training_seed=spec.training_seed,
    )


def _refuse_a_model_that_does_not_fit(model: models.ModelSpec, input_shape: tuple[int, ...], outputs: int) -> None:
    """Before it is built: with the numbers, where its parameters alone are more than is free."""
    need, free = _BUILDING * (model.parameters(input_shape, outputs) or 0), available()
    if need > free:
        raise InputError(
            f"model {model.label}: its parameters need {human(min(need, _BEYOND_WORDS))} of memory, {human(free)} are "
            "free; use smaller layers"
        )


@torch.no_grad()
def _refuse_unknown_tokens(dataset: Dataset, model: models.FlatModel) -> None:
    """The records with the largest ids, place by place, pass through the model: else it is a round that fails."""
    values = dataset.x.reshape(len(dataset), -1)
    model.module.eval()
    for row in sorted(set(values.argmax(dim=0).tolist())):
        try:
            model.module(dataset.inputs(torch.tensor([row])).to(model.device))
        except (IndexError, RuntimeError) as error:
            raise InputError(
                f"data: record {row} of {dataset.name} has the token {int(values[row].max())}, which the model cannot "
                f"look up ({explained(error)}); a vocabulary of at least {int(values.max()) + 1} is expected"
            ) from error


def posed(spec: Spec, root: str | Path | None = None) -> tuple[TaskSpec, Dataset]:
    """The task, stated or found from labels and outputs, fitted to the records, and the records as it takes them."""
    dataset = records_of(spec, root)
    stated = spec.task if spec.task is not None else found_task(spec, dataset)
    if stated.labels != dataset.labels:
        raise OptionError(
            "task", f"{dataset.name} has {MEANT[dataset.labels]}; {stated.name} asks for {MEANT[stated.labels]}"
        )
    task = stated.fitted(dataset.y, dataset.classes)
    y, strata, groups, notes = task.prepared(dataset.y, dataset.classes)
    if stated.labels == "classes":
        return task, replace(dataset, notes=(*dataset.notes, *notes)) if notes else dataset
    return task, replace(dataset, y=y, strata=strata, groups=groups, notes=(*dataset.notes, *notes))


def found_task(spec: Spec, dataset: Dataset) -> TaskSpec:
    """What the labels are, and for two classes, whether a model of the user's own tells them by one logit."""
    if dataset.labels != "classes":
        return next(cls() for _, cls in tasks.registry.classes() if cls.labels == dataset.labels)
    one = ((RECORDS,), (RECORDS, 1))
    if dataset.classes == 2 and spec.model.answers(dataset.input_shape, 2, dataset.input_dtype) in one:
        return tasks.get("binary")
    return tasks.get("classification")


class Pins:
    """What users' own files and models are, found out once each however many specs name them."""

    def __init__(self, root: str | Path | None = None) -> None:
        self._root = root
        self._contents: dict[str, str | None] = {}
        self._models: dict[str, models.ModelSpec] = {}

    def pinned(self, spec: Spec) -> Spec:
        """The spec with the content of a user's own files and model in it, so that a changed one is another run.

        So is the device that `auto` stands for.
        """
        if spec.device == "auto":
            spec = spec.model_copy(update={"device": devices.chosen(spec.device)})
        key = str(spec.data.canonical())
        if key not in self._contents:
            self._contents[key] = spec.data.fingerprint(data.roots(self._root))
        content = self._contents[key]
        if content is not None:
            spec = spec.model_copy(update={"data": spec.data.model_copy(update={"content": content})})
        if spec.task is None and (content is not None or spec.model.unpinned):
            found = found_task(spec, records_of(spec, self._root))
            if not isinstance(found, Classification):
                spec = spec.model_copy(update={"task": found})
        if spec.task is not None and spec.task.loss is not None:
            spec = spec.model_copy(update={"task": spec.task.pinned()})
        if not spec.model.unpinned:
            return spec
        key = f"{spec.data.canonical()} {spec.model.canonical()} {spec.task and spec.task.canonical()}"
        if key not in self._models:
            task, dataset = posed(spec, self._root)
            outputs = task.outputs(dataset.classes)
            built_for = models.Task(dataset.input_shape, outputs, dataset.input_dtype, task)
            self._models[key] = spec.model.pinned(built_for)
        return spec.model_copy(update={"model": self._models[key]})


# A worker runs many specs on the same records: the last data set read stays in memory.
_last_read: tuple[str, Dataset] | None = None


def records_of(spec: Spec, root: str | Path | None = None) -> Dataset:
    """The records of a spec, read once for as long as specs name the same."""
    global _last_read
    kind = None if spec.task is None else spec.task.labels
    key = f"{spec.data.canonical()} {kind} {data.roots(root)}"
    if _last_read is None or _last_read[0] != key:
        _last_read = (key, spec.data.labelled(kind).read(data.roots(root)))
    return _last_read[1]
