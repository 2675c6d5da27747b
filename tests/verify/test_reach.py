"""Lengths at which masks and angles were compared, of all parts of a model together."""

from graphpass.verify.reach import LengthProof, Reach


def test_counts_above_0_are_lines():
    assert list(LengthProof("masks", 2, 0, ("attention a: it is opaque",)).in_words()) == [
        "masks of 2 attention equal for every batch, past and length",
        "masks compared at sampled lengths: attention a: it is opaque",
    ]
    assert list(LengthProof("angles", 0, 3, ()).in_words()) == [
        "angles or learned positions of 3 nodes equal for every batch, past and length without padding"
    ]


def test_parts_are_added():
    first = Reach((8, 32), ((0, 8),), 2, 1, 100, (LengthProof("masks", 2, 0, ("a",)), LengthProof("angles", 1, 0, ())))
    second = Reach(
        (4, 8), ((0, 4), (0, 8)), 1, 1, 50, (LengthProof("masks", 0, 1, ()), LengthProof("angles", 1, 0, ()))
    )
    assert first + second == Reach(
        (4, 8, 32), ((0, 4), (0, 8)), 3, 2, 100, (LengthProof("masks", 2, 1, ("a",)), LengthProof("angles", 2, 0, ()))
    )
