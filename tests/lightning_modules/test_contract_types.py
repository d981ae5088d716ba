"""Source tables and the protocols of the contract."""

from __future__ import annotations

from inspect import getattr_static

import pytest
import torch

from protometry.lightning_modules import Classifier, contract
from protometry.lightning_modules.contract import InterpretableModel, Projectable, SourceTable, empty_sources
from tests.lightning_modules.registry import MODELS, TINY_PROTOPNET


def sources(*identities: tuple[int, int, int]) -> SourceTable:
    key, row, col = torch.tensor(identities).T
    rest = empty_sources(len(key))
    return SourceTable(key, rest.sample_id, row, col, rest.label, rest.distance, rest.box)


# -- sources ---------------------------------------------------------------------------------------------------------
def test_duplicates_share_image_and_cell():
    table = sources((5, 0, 1), (9, 0, 1), (5, 0, 1), (5, 1, 0), (9, 0, 1), (5, 0, 1), (5, 1, 1))
    assert table.duplicates() == [[0, 2, 5], [1, 4]]


def test_units_without_source_are_no_duplicates():
    table = empty_sources(3)
    assert table.duplicates() == []
    assert not table.found.any()
    assert torch.isinf(table.distance).all()
    assert table.box.shape == (3, 4)
    assert sources((-1, -1, -1), (0, 0, 0)).found.tolist() == [False, True]


# -- protocols -------------------------------------------------------------------------------------------------------
def test_models_say_what_they_are():
    options = {"num_classes": 4, "image_size": (32, 32)}
    prototypes, control = TINY_PROTOPNET(**options), Classifier(**options)
    assert isinstance(prototypes, InterpretableModel)
    assert isinstance(control, InterpretableModel)
    assert isinstance(prototypes, Projectable)
    assert not isinstance(control, Projectable)


@pytest.mark.parametrize("name", ["ConceptBottleneck", "ProtoTree", "ProtoPNet"])
def test_python_3_12_finds_what_models_are(name):
    """From there on ``isinstance`` reads members statically, which finds no buffers and no submodules of a module."""
    model = MODELS[name](num_classes=4, image_size=(32, 32))
    protocols = [kind for kind in vars(contract).values() if getattr(kind, "_is_runtime_protocol", False)]
    assert protocols
    for protocol in protocols:
        members = [m for m in {**vars(protocol), **protocol.__annotations__} if not m.startswith("_")]
        static = all(getattr_static(model, member, None) is not None for member in members)
        assert static == isinstance(model, protocol), protocol.__name__
