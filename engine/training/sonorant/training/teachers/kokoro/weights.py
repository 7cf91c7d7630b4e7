"""The weights of Kokoro-82M, as the teacher keeps them: 8-bit integers under the names of its torch modules.

The only whole copy in a package registry is an ONNX export with 8-bit weights. `convert` (needs the package onnx) finds
the torch name of each of its tensors; `load` returns them as float32.
"""

import lzma
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from safetensors.torch import load as load_safetensors
from safetensors.torch import save as save_safetensors
from torch import Tensor

FILE_NAME = "kokoro.safetensors.xz"
SCALE, ZERO = ":scale", ":zero"  # suffixes of the tensors that belong to a quantized one
_PROSODY = r"(F0|N)\.\d|(F0|N)_proj|shared"  # modules of the predictor that the export has one level higher
_LATER_LAYER = re.compile(r"/encoder/bert/.*_\d+/[^/]+")  # all layers of an ALBERT have the weights of the first
Array = npt.NDArray[Any]


def load(folder: Path) -> dict[str, Tensor]:
    """Return the tensors of the torch modules by name, in float32."""
    stored = load_safetensors(lzma.decompress((folder / FILE_NAME).read_bytes()))
    weights = {}
    for name, tensor in stored.items():
        if name + SCALE in stored:
            weights[name] = (tensor.float() - stored[name + ZERO].float()) * stored[name + SCALE]
        elif not name.endswith((SCALE, ZERO)):
            weights[name] = tensor
    return weights


def convert(onnx_file: Path, folder: Path) -> None:
    """Write the weights of the export to the folder; takes a minute or two, mostly to compress them."""
    tensors = {name: torch.from_numpy(np.array(array, order="C")) for name, array in _tensors(onnx_file).items()}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / FILE_NAME).write_bytes(lzma.compress(save_safetensors(tensors), preset=9))


def _tensors(onnx_file: Path) -> Mapping[str, Array]:
    import onnx
    from onnx import numpy_helper

    graph = onnx.load(str(onnx_file)).graph
    constants = {constant.name: numpy_helper.to_array(constant) for constant in graph.initializer}
    found: dict[str, Array] = {}
    for name, array in constants.items():  # those that were not quantized have kept their names
        kept = name.startswith(("encoder.", "decoder.")) and not name.endswith("_scale")
        if kept and array.dtype == np.float32:
            found[_without_stage(name.split("."))] = array
    for node in graph.node:
        inputs: list[Any] = [constants.get(name) for name in node.input]
        if node.name.count("/") < 2 or _LATER_LAYER.fullmatch(node.name):
            continue
        weight = _module(node.name) + ".weight"
        match node.op_type:
            case "ConvInteger" | "MatMulInteger" if inputs[1] is not None:
                scale = constants[node.input[1].removesuffix("_quantized") + "_scale"]
                transposed = node.op_type == "MatMulInteger"
                _put(found, weight, inputs[1].T if transposed else inputs[1], scale, inputs[3], axis=0)
            case "DequantizeLinear":  # of the embeddings that a Gather has chosen
                table = constants[node.input[1].removesuffix("_scale") + "_quantized"]
                _put(found, weight, table, inputs[1], inputs[2], axis=0)
            case "DynamicQuantizeLSTM":
                _put_lstm(found, _module(node.name), inputs)
            case "Conv" | "ConvTranspose" if inputs[1] is not None:
                found[weight] = inputs[1]
            case "MatMul" if inputs[1] is not None:
                found[weight] = inputs[1].T
    return found


def _put(found: dict[str, Array], name: str, values: Array, scale: Array, zero: Array, axis: int) -> None:
    """Store a quantized tensor whose scale and zero point are one number, or one for each entry of an axis."""
    shape = [1] * values.ndim
    if scale.size > 1:
        shape[axis] = scale.size
    found |= {name: values, name + SCALE: scale.reshape(shape)}
    found[name + ZERO] = np.broadcast_to(zero.reshape(shape if zero.size > 1 else [1] * values.ndim), shape)


def _put_lstm(found: dict[str, Array], module: str, inputs: Sequence[Any]) -> None:
    """Store a bidirectional LSTM. Its gates are in another order than torch's: input, output, forget, cell."""
    _, w, r, b, _, _, _, _, w_scale, w_zero, r_scale, r_zero = inputs

    def ordered(gates: Array) -> Array:
        i, o, f, c = np.split(gates, 4)
        return np.concatenate([i, f, c, o])

    for direction, suffix in enumerate(("_l0", "_l0_reverse")):
        _put(found, f"{module}.weight_ih{suffix}", ordered(w[direction].T), w_scale[direction], w_zero[direction], 0)
        _put(found, f"{module}.weight_hh{suffix}", ordered(r[direction].T), r_scale[direction], r_zero[direction], 0)
        for name, bias in zip(("bias_ih", "bias_hh"), np.split(b[direction], 2), strict=True):
            found[f"{module}.{name}{suffix}"] = ordered(bias)


def _module(node_name: str) -> str:
    """`/encoder/text_encoder/cnn.0/cnn.0.1/Conv_quant` -> `text_encoder.cnn.0.1`."""
    parts = node_name.split("/")[1:-1]
    return _without_stage(
        [p for p, inner in zip(parts, [*parts[1:], ""], strict=True) if not inner.startswith(p + ".")]
    )


def _without_stage(parts: Sequence[str]) -> str:
    """The torch name: the export has the modules in two stages, `encoder` and `decoder.decoder`."""
    name = ".".join(parts[1:])
    return f"predictor.{name}" if parts[0] == "encoder" and re.match(_PROSODY, name) else name
