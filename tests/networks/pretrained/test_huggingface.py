"""Local models of transformers, in tiny forms that are saved and loaded."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from transformers import (
    BertConfig,
    BertModel,
    CLIPConfig,
    CLIPModel,
    PreTrainedModel,
    ResNetConfig,
    ResNetModel,
    ViTConfig,
    ViTForImageClassification,
    ViTModel,
)

from rectifier.networks.pretrained.backbone import Preprocessing
from rectifier.networks.pretrained.huggingface import PooledOutput, read_preprocessing
from rectifier.networks.pretrained.loading import load_backbone
from rectifier.networks.registry import build_network, default_size

TRANSFORMER = {"hidden_size": 12, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 24}
PATCHES = {**TRANSFORMER, "image_size": 16, "patch_size": 8}
PREPARED = {"size": {"height": 16, "width": 16}, "image_mean": [0.4, 0.5, 0.6], "image_std": [0.5] * 3, "resample": 3}


def save(model: PreTrainedModel, folder: Path, prepared: dict | None = None) -> str:
    """Save a model, in float32, as transformers does, and return its name for us."""
    model.save_pretrained(folder)
    (folder / "preprocessor_config.json").write_text(json.dumps(prepared or PREPARED))
    return f"hf:{folder}"


def transformer(kind: type = ViTModel) -> PreTrainedModel:
    torch.manual_seed(0)
    return kind(ViTConfig(**PATCHES)).eval()


def images(side: int = 16) -> torch.Tensor:
    return torch.randn(2, 3, side, side, generator=torch.Generator().manual_seed(0))


def features(name: str, side: int = 16) -> torch.Tensor:
    made = load_backbone(name)
    with torch.no_grad():
        found = made.trunk(images(side))
    assert found.shape == (2, made.width)
    return found


def test_the_pooled_output_is_taken_where_there_is_one(tmp_path: Path) -> None:
    model = transformer()
    with torch.no_grad():
        expected = model(pixel_values=images()).pooler_output
    torch.testing.assert_close(features(save(model, tmp_path)), expected)


def test_a_pooler_with_random_weights_is_not_used(tmp_path: Path) -> None:
    model = transformer(ViTForImageClassification)  # its checkpoint has no pooler
    with torch.no_grad():
        expected = model.vit(pixel_values=images()).last_hidden_state[:, 0]
    name = save(model, tmp_path)
    torch.testing.assert_close(features(name), expected)
    torch.testing.assert_close(features(name), expected)
    assert not [p for p, _ in load_backbone(name).trunk.named_parameters() if "pooler" in p]


def test_maps_are_averaged(tmp_path: Path) -> None:
    torch.manual_seed(0)
    config = ResNetConfig(embedding_size=8, hidden_sizes=[8, 12], depths=[1, 2], layer_type="basic")
    model = ResNetModel(config).eval()
    name = save(model, tmp_path, {"size": {"shortest_edge": 32}})
    with torch.no_grad():
        expected = model(pixel_values=images(32)).last_hidden_state.mean((2, 3))
    torch.testing.assert_close(features(name, 32), expected, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("shape", [(2, 5, 4), (2, 4, 3, 3)])
def test_without_class_token_and_pooler_the_mean_is_taken(shape: tuple[int, ...]) -> None:
    given = torch.randn(shape)

    class Model(torch.nn.Module):
        def forward(self, pixel_values: torch.Tensor) -> object:
            return type("Output", (), {"last_hidden_state": given})

    expected = given.mean(1) if given.dim() == 3 else given.mean((2, 3))
    assert torch.equal(PooledOutput(Model())(given), expected)


def test_of_a_model_for_images_and_text_the_images_count(tmp_path: Path) -> None:
    torch.manual_seed(0)
    text = {**TRANSFORMER, "vocab_size": 20, "max_position_embeddings": 8, "bos_token_id": 0, "eos_token_id": 1}
    model = CLIPModel(CLIPConfig(text_config=text, vision_config=PATCHES, projection_dim=4)).eval()
    with torch.no_grad():
        expected = model.vision_model(pixel_values=images()).pooler_output
    torch.testing.assert_close(features(save(model, tmp_path)), expected)


def test_it_is_a_network_of_the_registry(tmp_path: Path) -> None:
    network = build_network(save(transformer(), tmp_path), [3, 2], (16, 16, 1), branch=5, seed=0)
    assert network(torch.randn(2, 1, 16, 16)).features.shape == (2, 2, 5)


def test_the_last_blocks_are_the_last_stage(tmp_path: Path) -> None:
    made = load_backbone(save(transformer(), tmp_path))
    assert made.preprocessing == Preprocessing((16, 16), (0.4, 0.5, 0.6), (0.5,) * 3, "bicubic")
    assert len(made.stages()) == 6  # embedding, three blocks, normalisation, pooler
    names = {id(p): name for name, p in made.trunk.named_parameters()}
    last = {names[id(p)] for p in made.trainable("last")}
    assert any(".2." in name for name in last)
    assert not any("embeddings" in name or ".0." in name for name in last)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, Preprocessing((224, 224), (0.5,) * 3, (0.5,) * 3, "bilinear")),
        ({"size": 64, "resample": 0}, Preprocessing((64, 64), (0.5,) * 3, (0.5,) * 3, "nearest")),
        (
            {"size": {"shortest_edge": 70}, "do_center_crop": True, "crop_size": {"height": 64, "width": 48}},
            Preprocessing((64, 48), (0.5,) * 3, (0.5,) * 3, "bilinear"),
        ),
        ({"do_normalize": False, "resample": 1}, Preprocessing((224, 224), (0.0,) * 3, (1.0,) * 3, "lanczos")),
    ],
)
def test_how_images_are_prepared(given: dict, expected: Preprocessing, tmp_path: Path) -> None:
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(given))
    assert read_preprocessing(tmp_path) == expected


def test_an_unusable_preparation_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"preprocessor_config\.json does not exist. It says how images are"):
        read_preprocessing(tmp_path)
    (tmp_path / "preprocessor_config.json").write_text('{"size": {"wide": 3}}')
    with pytest.raises(ValueError, match=r"size in .* to be a number of pixels, or height and width"):
        read_preprocessing(tmp_path)


def test_folders_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"config\.json does not exist. hf:FOLDER takes a local model"):
        load_backbone(f"hf:{tmp_path}")
    (tmp_path / "config.json").write_text('{"model_type": "vit"}')
    with pytest.raises(ValueError, match=r"Transformers cannot load .*: "):
        load_backbone(f"hf:{tmp_path}")
    text = BertModel(BertConfig(**TRANSFORMER, vocab_size=20))
    with pytest.raises(ValueError, match="to be an image model, but got BertModel, which takes input_ids"):
        load_backbone(save(text, tmp_path / "text"))
    with pytest.raises(ValueError, match=r"does not accept images of 24 x 24 x 3"):
        load_backbone(save(transformer(), tmp_path / "images"), size=24)


def test_the_size_is_known_before_the_model_is_loaded(tmp_path: Path) -> None:
    assert default_size(save(transformer(), tmp_path)) == (16, 16)


def test_damaged_weights_are_a_sentence(tmp_path: Path) -> None:
    name = save(transformer(), tmp_path)
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:100])
    with pytest.raises(ValueError, match="Transformers cannot load"):
        load_backbone(name)
