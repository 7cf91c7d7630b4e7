"""Names and shapes of the weights of single layers."""

Shapes = dict[str, tuple[int, ...]]


def linear(name: str, *shape: int) -> Shapes:
    return {name + ".weight": shape, name + ".bias": shape[:1]}


def conv(name: str, num_out: int, num_in: int, kernel: int) -> Shapes:
    return {name + ".weight": (num_out, num_in, kernel), name + ".bias": (num_out,)}


def transposed_conv(name: str, num_in: int, num_out: int, kernel: int) -> Shapes:
    return {name + ".weight": (num_in, num_out, kernel), name + ".bias": (num_out,)}


def snake(name: str, channels: int) -> Shapes:
    return {name + ".alpha": (channels,), name + ".beta": (channels,)}


def mlp_shapes(layer: str, hidden: int, intermediate: int) -> Shapes:
    return {
        layer + "mlp.gate_proj.weight": (intermediate, hidden),
        layer + "mlp.up_proj.weight": (intermediate, hidden),
        layer + "mlp.down_proj.weight": (hidden, intermediate),
    }
