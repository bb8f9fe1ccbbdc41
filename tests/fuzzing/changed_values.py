"""Values that are said to be something else, lose their name or their weight, or come twice."""

from __future__ import annotations

from typing import Final

from tests.fuzzing.model_surgery import ELEMENT_TYPES, EXTENTS, Change, Surgery, spoil_tensor


def _other_element_type(s: Surgery) -> None:
    s.value_info().type.tensor_type.elem_type = s.pick(ELEMENT_TYPES)


def _other_extent(s: Surgery) -> None:
    dims = s.value_info().type.tensor_type.shape.dim
    s.pick(dims).dim_value = s.pick(EXTENTS)


def _symbol_extent(s: Surgery) -> None:
    s.pick(s.value_info().type.tensor_type.shape.dim).dim_param = s.pick(["N", "", "x + 1", "batch"])


def _other_rank(s: Surgery) -> None:
    dims = s.value_info().type.tensor_type.shape.dim
    if s.rng.random() < 0.5:
        del dims[s.place(dims)]
    else:
        dims.add().dim_value = s.pick(EXTENTS)


def _forget_shape(s: Surgery) -> None:
    s.value_info().type.tensor_type.ClearField("shape")


def _forget_type(s: Surgery) -> None:
    s.value_info().ClearField("type")


def _other_kind(s: Surgery) -> None:
    kind = s.value_info().type
    element = kind.tensor_type.elem_type or 1
    inner = kind.sequence_type if s.rng.random() < 0.5 else kind.optional_type
    inner.elem_type.tensor_type.elem_type = element


def _rename_value(s: Surgery) -> None:
    s.value_info().name = s.pick(s.names())


def _contradict_value(s: Surgery) -> None:
    info = s.graph().value_info.add(name=s.pick(s.names()))
    info.type.tensor_type.elem_type = s.pick(ELEMENT_TYPES)
    for _ in range(s.rng.randrange(4)):
        info.type.tensor_type.shape.dim.add().dim_value = s.pick(EXTENTS)


def _drop_input_or_output(s: Surgery) -> None:
    graph = s.graph()
    values = graph.output if s.rng.random() < 0.5 else graph.input
    del values[s.place(values)]


def _duplicate_input_or_output(s: Surgery) -> None:
    graph = s.graph()
    values = graph.output if s.rng.random() < 0.5 else graph.input
    values.add().CopyFrom(s.pick(values))


def _drop_initializer(s: Surgery) -> None:
    tensors = s.graph().initializer
    del tensors[s.place(tensors)]


def _duplicate_initializer(s: Surgery) -> None:
    tensors = s.graph().initializer
    tensors.add().CopyFrom(s.pick(tensors))


def _rename_initializer(s: Surgery) -> None:
    s.pick(s.graph().initializer).name = s.pick(s.names())


def _spoil_initializer(s: Surgery) -> None:
    spoil_tensor(s, s.pick(s.graph().initializer))


def _initializer_as_input(s: Surgery) -> None:
    tensor = s.pick(s.graph().initializer)
    info = s.graph().input.add(name=tensor.name)
    info.type.tensor_type.elem_type = tensor.data_type
    for extent in tensor.dims:
        info.type.tensor_type.shape.dim.add().dim_value = extent


CHANGES: Final[tuple[Change, ...]] = (
    _other_element_type,
    _other_extent,
    _symbol_extent,
    _other_rank,
    _forget_shape,
    _forget_type,
    _other_kind,
    _rename_value,
    _contradict_value,
    _drop_input_or_output,
    _duplicate_input_or_output,
    _drop_initializer,
    _duplicate_initializer,
    _rename_initializer,
    _spoil_initializer,
    _initializer_as_input,
)
