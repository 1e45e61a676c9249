import torch
from torch import nn

from exhume.networks.attention import differentiable_attention
from exhume_papers.networks.derivatives import load_forward_derivatives


def test_torch_s_fused_encoder_layer_is_avoided_inside_and_restored_after() -> None:
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True, norm_first=True).eval()
    tokens = torch.randn(2, 3, 8)
    before = torch.backends.mha.get_fastpath_enabled()
    with torch.no_grad(), differentiable_attention():
        load_forward_derivatives()
        moved = torch.func.jvp(layer, (tokens,), (torch.ones_like(tokens),))[1]
        plain = layer(tokens)
    with torch.no_grad():
        torch.testing.assert_close(plain, layer(tokens), atol=1e-5, rtol=1e-5)
    assert bool(moved.isfinite().all())
    assert torch.backends.mha.get_fastpath_enabled() == before
