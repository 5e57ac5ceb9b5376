"""Devices by name and from files; calibrations as they are read."""

import pytest

from polopt.config import ConfigError
from polopt.plan import hardware


def test_devices_are_found_however_they_are_written():
    for text in ("8xH100", "8 x h100", "8*H100"):
        count, device = hardware.find(text)
        assert (count, device.name) == (8, "H100")
    assert hardware.find("A100-80")[0] == 1
    assert hardware.find("4xRTX 4090")[1].memory == 24e9


@pytest.mark.parametrize(("text", "sentence"), [("8xH10", "did you mean 'H100'"), ("0xH100", "one device or more")])
def test_devices_that_are_none(text, sentence):
    with pytest.raises(ConfigError, match=sentence):
        hardware.find(text)


def test_links_across_nodes_are_slower():
    device = hardware.table()["H100"]
    assert device.link_bandwidth(8) == device.link > device.link_bandwidth(16) == device.between


def test_a_file_of_devices(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text("Mine: {flops: {bfloat16: 1e14}, memory: 32e9, bandwidth: 1e12, price: 0.2}")
    mine = hardware.read(file)["Mine"]
    assert mine.rate("bfloat16") == 1e14
    with pytest.raises(ConfigError, match=r"hardware.Mine.flops has no 'float32'"):
        mine.rate("float32")
    file.write_text("Mine: {flops: {bfloat16: 1e14}, memory: 32e9, bandwith: 1e12}")
    with pytest.raises(ConfigError, match="bandwith is not a setting; did you mean 'bandwidth'"):
        hardware.read(file)
    with pytest.raises(ConfigError, match="cannot be read"):
        hardware.read(tmp_path / "none.yaml")


def test_small_buffers_stay_in_the_cache():
    device = hardware.table()["H100"].model_copy(update={"cache": 1e6, "cache_bandwidth": 1e13})
    assert device.reads(1e6) == 1e13
    assert device.reads(2e6) == device.bandwidth
