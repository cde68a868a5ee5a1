"""An untrained autoencoder with hand-set weights that preserve colours, for models with random weights.

A VAE with random weights turns every image and every latent into noise, so its samples would not show what a denoiser
has learned. This one encodes an image into the mean colours of its pixel blocks (8 × 8 for SD) and decodes them as a
blurred image. Its structure and files are those of any AutoencoderKL.

Method: residual blocks and attention contribute nothing, and the convolutions between them pass on four signals (red,
green, blue, their mean). A signal x is encoded as the channels (x, −x, C, −C) of one normalisation group: the group's
mean is then 0, its deviation nearly constant, and silu(x) − silu(−x) = x undoes the activation.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

_SIGNALS = 4
_COMPANION = 32.0  # C: x is scaled by 1/√(1 + mean(x²)/C²), 0.05 % at the most for pixels in [−1, 1]
_LOG_VARIANCE = -12.0  # of the posterior: a standard deviation of 0.0025 in a range of 2
_AVERAGE = torch.tensor([[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 0.0]]) / 4  # with the padding on the far sides
_BILINEAR = torch.tensor([[1.0, 2.0, 1.0], [2.0, 4.0, 2.0], [1.0, 2.0, 1.0]]) / 16  # after repeating each pixel
_CENTRE = torch.tensor([[0.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 0.0]])


def fits(config: Any) -> bool:
    """Whether an AutoencoderKL of this configuration has the channels that `arrange` needs."""
    groups = int(config.get("norm_num_groups", 32))
    widths = config.get("block_out_channels", (64,))
    plain = int(config.get("in_channels", 3)) == int(config.get("out_channels", 3)) == 3
    return plain and groups >= _SIGNALS <= int(config.get("latent_channels", 4)) and min(widths) // groups >= 4


@torch.no_grad()
def arrange(vae: Any) -> None:
    """Sets the weights of an AutoencoderKL, in place. Its configuration must fit."""
    assert fits(vae.config), dict(vae.config)
    groups = vae.encoder.conv_norm_out.num_groups
    for side in (vae.encoder, vae.decoder):
        for module in side.modules():
            _silence(module)
            if getattr(module, "conv_shortcut", None) is not None:
                _pass_on(module.conv_shortcut, torch.ones(1, 1), groups)
        _spread_norm(side.conv_norm_out)
    for block in vae.encoder.down_blocks[:-1]:
        _pass_on(block.downsamplers[0].conv, _AVERAGE, groups)
    for i, block in enumerate(vae.decoder.up_blocks[:-1]):
        # not smoothed at the coarsest level, where the grey padding of convolutions would give a broad frame
        _pass_on(block.upsamplers[0].conv, _BILINEAR if i else _CENTRE, groups)
    _enter(vae.encoder.conv_in, _colours(), groups)
    _leave(vae.encoder.conv_out, groups)
    vae.encoder.conv_out.bias[vae.config.latent_channels :] = _LOG_VARIANCE
    _enter(vae.decoder.conv_in, torch.eye(_SIGNALS), groups)
    _leave(vae.decoder.conv_out, groups)
    for conv in (vae.quant_conv, vae.post_quant_conv):
        if conv is not None:
            conv.weight.copy_(torch.eye(conv.out_channels)[:, :, None, None])
            conv.bias.zero_()


def _colours() -> Tensor:
    """(4, 3): red, green and blue, and their mean."""
    return torch.cat((torch.eye(3), torch.full((1, 3), 1 / 3)))


def _silence(module: nn.Module) -> None:
    """Turns residual blocks into identities and attention into a no-op."""
    last = getattr(module, "conv2", None)
    if last is None and hasattr(module, "to_out"):
        last = module.to_out[0]  # type: ignore[index]
    if isinstance(last, (nn.Conv2d, nn.Linear)):
        last.weight.zero_()
        if last.bias is not None:
            last.bias.zero_()


def _enter(conv: nn.Conv2d, mixture: Tensor, groups: int) -> None:
    """The first convolution: signals are mixtures (4, inputs) of the inputs."""
    _write(conv, mixture, _CENTRE, groups, range(mixture.shape[1]))


def _pass_on(conv: nn.Conv2d, kernel: Tensor, groups: int) -> None:
    """A convolution in between: each signal through `kernel`."""
    _write(conv, torch.eye(_SIGNALS), kernel, groups, range(0, conv.in_channels, conv.in_channels // groups))


def _write(conv: nn.Conv2d, mixture: Tensor, kernel: Tensor, groups: int, inputs: range) -> None:
    """Writes signals and companions into the groups of the output."""
    width = conv.out_channels // groups
    conv.weight.zero_()
    assert conv.bias is not None
    conv.bias.zero_()
    for signal in range(_SIGNALS):
        first = signal * width
        for source in range(mixture.shape[1]):
            conv.weight[first, inputs[source]] = mixture[signal, source] * kernel
            conv.weight[first + 1, inputs[source]] = -mixture[signal, source] * kernel
        conv.bias[first + 2] = _COMPANION
        conv.bias[first + 3] = -_COMPANION


def _spread_norm(norm: nn.GroupNorm) -> None:
    """Undoes the division by the group's deviation, which is √(2 C² / width) but for the signal's own share."""
    width = norm.num_channels // norm.num_groups
    norm.weight.fill_((2 * _COMPANION**2 / width) ** 0.5)
    norm.bias.zero_()


def _leave(conv: nn.Conv2d, groups: int) -> None:
    """The last convolution: silu(x) − silu(−x) = x, for as many signals as there are outputs."""
    width = conv.in_channels // groups
    conv.weight.zero_()
    assert conv.bias is not None
    conv.bias.zero_()
    for signal in range(min(_SIGNALS, conv.out_channels)):
        conv.weight[signal, signal * width] = _CENTRE
        conv.weight[signal, signal * width + 1] = -_CENTRE
